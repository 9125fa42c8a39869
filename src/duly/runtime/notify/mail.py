"""Mail: notifications through an SMTP server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

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

_MOST_SUBJECT = 200
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class Mail:
    """Send notifications as mail.

    `server` is `smtp://host:25` (plain), `smtp+starttls://user@host:587` or `smtps://user@host:465`. A password is
    used only with the latter two.
    """

    def __init__(
        self,
        to: str | Sequence[str],
        *,
        sender: str,
        server: str = "smtp://localhost:25",
        password: str | None = None,
        password_file: str | Path | None = None,
        password_env: str | None = None,
        name: str = "mail",
        on: Sequence[str] | None = None,
        timeout: float = 20.0,
    ) -> None:
        self.name = checked_name(name)
        self.on = checked_kinds(name, on)
        self._to = [_address(name, "to", each) for each in ([to] if isinstance(to, str) else to)]
        if not self._to:
            raise ConfigurationError(f"notify {name!r}: to is empty: give an address")
        self._sender = _address(name, "sender", sender)
        self._scheme, self._host, self._port, self._user = _server(name, server)
        self._password = Secret(name, "password", password, password_file, password_env)
        self._timeout = checked_timeout(name, timeout)
        if self._password.given and (self._scheme == "smtp" or self._user is None):
            raise ConfigurationError(
                f"notify {name!r}: a password needs a user and encryption: server = smtps://user@host"
            )

    def __repr__(self) -> str:
        return f"Mail({self._to!r}, name={self.name!r})"

    def __str__(self) -> str:
        return f"mail to {', '.join(self._to)} by {self._scheme}://{self._host}:{self._port}"

    async def send(self, notification: Notification) -> None:
        message = self._message(notification)
        await in_thread(lambda: self._send(message))

    def _message(self, notification: Notification) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        words = " ".join(notification.text.split())
        message["Subject"] = f"[duly] {words if len(words) <= _MOST_SUBJECT else words[:_MOST_SUBJECT] + '…'}"
        message["Date"] = format_datetime(notification.at)
        message["Message-ID"] = f"<{notification.id}.duly@{self._sender.rpartition('@')[2]}>"
        message["Duly-Notification"] = notification.id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(_content(notification))
        return message

    def _send(self, message: EmailMessage) -> None:
        try:
            with self._connected() as server:
                server.send_message(message, self._sender, self._to)
        except smtplib.SMTPRecipientsRefused as exc:
            codes = [code for code, _ in exc.recipients.values()]
            said = "; ".join(f"{address}: {code}" for address, (code, _) in exc.recipients.items())
            if all(500 <= code < 600 for code in codes):
                raise DeliveryRejected(f"all recipients were refused: {said}") from exc
            raise OSError(f"recipients were refused: {said}") from exc

    def _connected(self) -> smtplib.SMTP:
        if self._scheme == "smtps":
            context = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout, context=context)
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout)
        try:
            if self._scheme == "smtp+starttls":
                server.starttls(context=ssl.create_default_context())
            if self._user is not None and (password := self._password.get()) is not None:
                server.login(self._user, password)
        except BaseException:
            server.close()
            raise
        return server


def _content(notification: Notification) -> str:
    fields = {
        "job": notification.job,
        "runs": str(notification.count) if notification.count > 1 else "",
        "run": notification.run_id or "",
        "error": notification.error,
        "reason": notification.reason,
        "notification": notification.id,
    }
    listed = [f"{each.kind.value}: {each.job}, {each.count}: {each.error}" for each in notification.concerns]
    lines = [notification.text, "", *listed, *(f"{name}: {value}" for name, value in fields.items() if value)]
    return "\n".join(lines) + "\n"


def _address(name: str, field: str, given: object) -> str:
    """An address as it may stand in a header: no line breaks, no control characters."""
    if not isinstance(given, str) or "@" not in given or not given.isprintable() or len(given) > 320:
        raise ConfigurationError(
            f"notify {name!r}: {field}={shown(given)}: expected an address such as ops@example.org"
        )
    return given


def _server(name: str, server: object) -> tuple[str, str, int, str | None]:
    try:
        parts = urlsplit(server if isinstance(server, str) else "")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path not in {"", "/"} or parts.password is not None:
        raise ConfigurationError(
            f"notify {name!r}: server: expected {', '.join(f'{scheme}://host' for scheme in _PORTS)}, with the password"
            " in password_file or password_env"
        )
    user = None if parts.username is None else unquote(parts.username)
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme], user
