"""The half of an event loop that a simulation does not have: sockets, pipes, signals, processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: asyncio.AbstractEventLoop, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"a simulated loop has no {name}: nothing from outside may reach into virtual time")

    return refuse


class OfflineLoop(asyncio.AbstractEventLoop):
    """Refuses, with the reason, every access to the outside world."""

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        _refused("add_reader")(self)

    def add_signal_handler(self, sig: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        _refused("add_signal_handler")(self)

    def add_writer(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        _refused("add_writer")(self)

    connect_accepted_socket = _refused("connect_accepted_socket")
    connect_read_pipe = _refused("connect_read_pipe")
    connect_write_pipe = _refused("connect_write_pipe")
    create_connection = _refused("create_connection")
    create_datagram_endpoint = _refused("create_datagram_endpoint")
    create_server = _refused("create_server")
    create_unix_connection = _refused("create_unix_connection")
    create_unix_server = _refused("create_unix_server")
    getaddrinfo = _refused("getaddrinfo")
    getnameinfo = _refused("getnameinfo")
    remove_reader = _refused("remove_reader")
    remove_signal_handler = _refused("remove_signal_handler")
    remove_writer = _refused("remove_writer")
    sendfile = _refused("sendfile")
    set_default_executor = _refused("set_default_executor")
    set_task_factory = _refused("set_task_factory")
    sock_accept = _refused("sock_accept")
    sock_connect = _refused("sock_connect")
    sock_recv = _refused("sock_recv")
    sock_recv_into = _refused("sock_recv_into")
    sock_recvfrom = _refused("sock_recvfrom")
    sock_recvfrom_into = _refused("sock_recvfrom_into")
    sock_sendall = _refused("sock_sendall")
    sock_sendfile = _refused("sock_sendfile")
    sock_sendto = _refused("sock_sendto")
    start_tls = _refused("start_tls")
    subprocess_exec = _refused("subprocess_exec")
    subprocess_shell = _refused("subprocess_shell")
