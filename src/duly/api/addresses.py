"""Addresses on which a process listens. The default is loopback; `:8080` means all interfaces."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from msgspec import Struct

from duly.errors import ConfigurationError

BACKLOG = 2048


class Address(Struct, frozen=True):
    """A host and a port; an empty host means all interfaces. `explicit` is false for a default address."""

    host: str
    port: int
    explicit: bool = True

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. Names other than localhost are not resolved."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address:
    """Parse `:8080`, `8080`, `host:8080` or `[::1]:8080`; port 0 means any free port."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        host, port = ("127.0.0.1", text.strip()) if text.strip().isdigit() else (text.strip(), "")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) <= 65535) or (":" in plain and plain == host):
        raise ConfigurationError(
            f"invalid address {text!r}: expected host:port, :8080 for all interfaces, or [::1]:8080"
        )
    return Address(plain, int(port))


def bind(address: Address) -> list[socket.socket]:
    """Sockets that listen on an address; raises OSError if that is not possible."""
    family = _family(address)
    anywhere = not address.host and family == socket.AF_INET6
    where = (address.host, address.port)
    return [socket.create_server(where, family=family, backlog=BACKLOG, dualstack_ipv6=anywhere)]


def bind_each(address: Address, count: int) -> list[socket.socket]:
    """A socket for each of several processes, on one port; the kernel spreads connections over those that listen.

    They do not listen yet. Raises OSError if the port is in use, also by sockets that would share it.
    """
    with socket.socket(_family(address)) as probe:
        _set_up(probe, address)
        probe.bind((address.host, address.port))
        port = probe.getsockname()[1]
    return [_shared(address, port) for _ in range(count)]


def _shared(address: Address, port: int) -> socket.socket:
    sock = socket.socket(_family(address))
    try:
        _set_up(sock, address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((address.host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _set_up(sock: socket.socket, address: Address) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if address.host else 0)


def _family(address: Address) -> socket.AddressFamily:
    if address.host:
        return socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET


def bound_to(address: Address, sockets: Sequence[socket.socket]) -> Address:
    """The address with its real port, if port 0 was asked for."""
    return Address(address.host, sockets[0].getsockname()[1], address.explicit)
