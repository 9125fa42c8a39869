"""The texts of statements for one namespace, each made once."""

from __future__ import annotations

import hashlib

_LONGEST = 63  # signs in an identifier


class Texts(dict[str, str]):
    """From a statement to its text: `{ns}` is the namespace's schema, quoted; `{bell}` its channel as a literal."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self.schema = quoted(namespace)
        self.channel = channel_of(namespace)

    def __missing__(self, sql: str) -> str:
        text = self[sql] = sql.replace("{ns}", self.schema).replace("{bell}", f"'{self.channel}'")
        return text


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever signs it has."""
    return '"' + name.replace('"', '""') + '"'


def channel_of(namespace: str) -> str:
    """The channel on which a namespace's bell rings; a name that would be too long is abbreviated."""
    whole = f"duly.{namespace}"
    return whole if len(whole) <= _LONGEST else f"duly.{hashlib.sha256(namespace.encode()).hexdigest()[:32]}"
