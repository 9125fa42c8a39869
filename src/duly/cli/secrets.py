"""Secrets in URLs are never written down."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#]+@")
_PARAMETERS = re.compile(r"(?<=[?&])([a-z_]*(?:password|secret|token)=)[^\s&#'\"]+", re.IGNORECASE)


def masked(text: str) -> str:
    """The text with the credentials of every URL in it left out."""
    return _PARAMETERS.sub(r"\1***", _CREDENTIALS.sub("***@", text))
