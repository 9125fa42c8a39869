"""TLS settings from the options of a URL: the same options for every backend that uses TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from msgspec import Struct

from duly.errors import BackendError, ConfigurationError

TLS_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify")
VERIFICATIONS = ("full", "ca", "none")


class Tls(Struct, frozen=True):
    """How to verify the server, and the client's own certificate. Paths of PEM files."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: str = "full"

    def context(self) -> ssl.SSLContext:
        """Reads the files, so it may wait for a disk."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as exc:
            named = ", ".join(file for file in (self.ca, self.cert, self.key) if file)
            raise ConfigurationError(f"a TLS file cannot be used, one of {named}: {exc}") from exc
        context.check_hostname = self.verify == "full"
        context.verify_mode = ssl.CERT_NONE if self.verify == "none" else ssl.CERT_REQUIRED
        return context


def tls_of(options: Mapping[str, str]) -> Tls:
    """What the options of a URL ask for."""
    tls = Tls(
        ca=options.get("ssl_ca") or None,
        cert=options.get("ssl_cert") or None,
        key=options.get("ssl_key") or None,
        verify=options.get("ssl_verify", "full"),
    )
    if tls.verify not in VERIFICATIONS:
        raise ConfigurationError(f"ssl_verify={tls.verify!r} is not possible: {', '.join(VERIFICATIONS)}")
    if tls.key is not None and tls.cert is None:
        raise ConfigurationError("ssl_key needs an ssl_cert")
    return tls


def certificate_refused(exc: ssl.SSLCertVerificationError, host: str) -> BackendError:
    """The error for a server whose certificate cannot be verified. Another attempt would not help."""
    return BackendError(
        f"the certificate of {host} is not accepted ({exc.verify_message}): name its authority with ?ssl_ca=FILE"
    )
