"""TLS of the server: a certificate and its key, checked before anything else happens."""

from __future__ import annotations

import ssl
from pathlib import Path

from duly.errors import ConfigurationError

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """What the server proves itself with. `ConfigurationError` names the file that cannot be used, and why."""
    _check(cert, "certificate", _CERTIFICATE)
    _check(key, "private key", _KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: _refuse_encrypted(key))
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"TLS: {key} is not the key of the certificate {cert}") from exc
        raise ConfigurationError(f"TLS: {cert} and {key} cannot be used: {exc.reason or exc}") from exc
    return context


def _check(path: str, what: str, mark: bytes) -> None:
    try:
        content = Path(path).read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"TLS: the {what} {path} cannot be read: {exc.strerror}") from exc
    if mark not in content:
        raise ConfigurationError(f"TLS: {path} holds no {what} in PEM form")


def _refuse_encrypted(key: str) -> str:
    """Nobody sits at a server's terminal to type a passphrase."""
    raise ConfigurationError(f"TLS: the private key {key} is encrypted: give one without a passphrase")
