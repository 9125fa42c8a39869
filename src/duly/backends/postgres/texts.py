"""The texts of statements for one namespace, each made once."""

from __future__ import annotations


class Texts(dict[str, str]):
    """From a statement to its text: `{ns}` is the namespace's schema, quoted."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self.schema = quoted(namespace)

    def __missing__(self, sql: str) -> str:
        text = self[sql] = sql.replace("{ns}", self.schema)
        return text


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever signs it has."""
    return '"' + name.replace('"', '""') + '"'
