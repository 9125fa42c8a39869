"""Webhooks: notifications as signed HTTP requests.

The address comes from the operator's configuration, never from a job. Only http and https are used, redirects are not
followed, proxies are not asked, and a response is read only as far as an error message needs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from duly.errors import ConfigurationError, shown
from duly.model.notification import Notification
from duly.runtime.notify.target import (
    DeliveryRejected,
    Secret,
    checked_kinds,
    checked_name,
    checked_timeout,
    in_thread,
)
from duly.version import __version__

SIGNATURE = "Duly-Signature"
MESSAGE_ID = "Duly-Notification"

_MOST_RESPONSE = 4096
_MOST_BODY = 1 << 20
_AGAIN = (408, 425, 429)

Body = Callable[[Notification], Mapping[str, Any]]


def slack(notification: Notification) -> dict[str, Any]:
    """The body that Slack and compatible services expect."""
    return {"text": notification.text}


_FORMATS: dict[str, Body | None] = {"json": None, "slack": slack}


class Webhook:
    """Send notifications as POST requests with a JSON body.

    With a `secret`, the header `Duly-Signature: t=SECONDS,v1=HEX` has the HMAC-SHA256 of `SECONDS.BODY`. `format` is
    "json" (all fields of the notification), "slack", or a function that returns the body.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "webhook",
        on: Sequence[str] | None = None,
        secret: str | None = None,
        secret_file: str | Path | None = None,
        secret_env: str | None = None,
        url_file: str | Path | None = None,
        url_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        format: str | Body = "json",  # noqa: A002  # the word users expect
        timeout: float = 10.0,
    ) -> None:
        self.name = checked_name(name)
        self.on = checked_kinds(name, on)
        self._url = Secret(name, "url", url, url_file, url_env)
        if self._url.source is None:
            _checked_url(name, url)
        self._secret = Secret(name, "secret", secret, secret_file, secret_env)
        self._headers = _checked_headers(name, headers)
        self._body = _checked_format(name, format)
        self._timeout = checked_timeout(name, timeout)

    def __repr__(self) -> str:
        return f"Webhook({str(self)!r}, name={self.name!r})"

    def __str__(self) -> str:
        """The address without path and query, which may be secret."""
        if self._url.source is not None:
            return f"webhook, address in {self._url.source}"
        parts = urlsplit(self._url.get() or "")
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{parts.hostname}{port}/…"

    async def send(self, notification: Notification) -> None:
        body = msgspec.json.encode(notification if self._body is None else self._body(notification))
        if len(body) > _MOST_BODY:
            raise DeliveryRejected(f"the body has {len(body)} bytes, more than {_MOST_BODY}")
        opened: list[http.client.HTTPConnection] = []
        try:
            await in_thread(lambda: self._post(notification.id, body, opened))
        except asyncio.CancelledError:
            for connection in opened:
                _abort(connection)
            raise

    def _post(self, message_id: str, body: bytes, opened: list[http.client.HTTPConnection]) -> None:
        parts = urlsplit(_checked_url(self.name, self._url.get()))
        connection = self._connection(parts)
        opened.append(connection)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", path, body, self._all_headers(message_id, body))
            response = connection.getresponse()
            answer = response.read1(_MOST_RESPONSE)
        finally:
            connection.close()
        _check(response.status, answer)

    def _connection(self, address: SplitResult) -> http.client.HTTPConnection:
        host, port = address.hostname or "", address.port
        if address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _all_headers(self, message_id: str, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": f"duly/{__version__}", MESSAGE_ID: message_id}
        if (secret := self._secret.get()) is not None:
            headers[SIGNATURE] = signature(secret, int(time.time()), body)
        return headers | self._headers


def _abort(connection: http.client.HTTPConnection) -> None:
    """End a request whose time is over: a receiver that sends a byte now and then would occupy its thread for ever."""
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def signature(secret: str, seconds: int, body: bytes) -> str:
    """The value of the header that authenticates a body and its time."""
    digest = hmac.new(secret.encode(), b"%d." % seconds + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def _check(status: int, answer: bytes) -> None:
    if 200 <= status < 300:
        return
    said = answer[:200].decode(errors="replace").strip()
    if 300 <= status < 400:
        raise DeliveryRejected(f"HTTP {status}: redirects are not followed; configure the final address")
    if 400 <= status < 500 and status not in _AGAIN:
        raise DeliveryRejected(f"HTTP {status}: {said}")
    raise OSError(f"HTTP {status}: {said}")


def _checked_url(name: str, url: str | None) -> str:
    if url is None:
        raise ConfigurationError(f"notify {name!r}: the address is missing: give url, url_file or url_env")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(sign <= " " for sign in url):
        raise ConfigurationError(f"notify {name!r}: url: expected an http or https address")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(f"notify {name!r}: url: credentials do not belong into the address: use headers")
    return url


def _checked_headers(name: str, headers: Mapping[str, Any] | None) -> dict[str, str]:
    for key, value in (headers or {}).items():
        if not isinstance(value, str) or not f"{key}{value}".isprintable() or not key:
            raise ConfigurationError(
                f"notify {name!r}: headers: {shown(key)} must have a printable string as its value"
            )
    return dict(headers or {})


def _checked_format(name: str, given: str | Body) -> Body | None:
    if callable(given):
        return given
    if given not in _FORMATS:
        raise ConfigurationError(f"notify {name!r}: format={shown(given)}: expected json, slack or a function")
    return _FORMATS[given]
