"""What is said to the v3 JSON gateway and what it answers, as structs.

Keys and values travel in base64, which msgspec does for bytes. Numbers of 64 bits come as texts, and what is zero,
false or empty is left out: every field has a default, and decoding is lax about numbers.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from duly.backends.etcd.errors import Refusal


class Header(Struct, frozen=True):
    revision: int = 0


class Pair(Struct, frozen=True):
    """A key as it stands. `version` counts its writes since it was created; revisions are the whole store's."""

    key: bytes = b""
    value: bytes = b""
    version: int = 0
    mod_revision: int = 0
    lease: int = 0


class Found(Struct, frozen=True):
    header: Header = Header()
    kvs: tuple[Pair, ...] = ()

    @property
    def first(self) -> Pair | None:
        return self.kvs[0] if self.kvs else None


class Step(Struct, frozen=True):
    response_range: Found | None = None


class Done(Struct, frozen=True):
    """The answer to a transaction. `succeeded` says which of its branches was taken."""

    header: Header = Header()
    succeeded: bool = False
    responses: tuple[Step, ...] = ()

    def found(self, number: int) -> Pair | None:
        """What the range of that number in the branch found."""
        ranged = self.responses[number].response_range
        return None if ranged is None else ranged.first


class Written(Struct, frozen=True):
    prev_kv: Pair | None = None


class Granted(Struct, frozen=True):
    """A lease of etcd's own; a TTL of zero or less means that there is none."""

    id: int = field(name="ID", default=0)
    ttl: int = field(name="TTL", default=0)


class Kept(Struct, frozen=True):
    result: Granted = Granted()


class Token(Struct, frozen=True):
    token: str = ""


class Status(Struct, frozen=True):
    version: str = ""
    leader: int = 0
    errors: tuple[str, ...] = ()


class Members(Struct, frozen=True):
    members: tuple[Any, ...] = ()


class Change(Struct, frozen=True):
    type: str = "PUT"
    kv: Pair = Pair()


class News(Struct, frozen=True):
    header: Header = Header()
    canceled: bool = False
    compact_revision: int = 0
    events: tuple[Change, ...] = ()


class Heard(Struct, frozen=True):
    """One line of a watch."""

    result: News = News()
    error: Refusal | None = None


Words = dict[str, Any]


def get(key: bytes, *, all_below: bool = False) -> Words:
    """A key, or all that begin with it."""
    return {"key": key, "range_end": key[:-1] + bytes([key[-1] + 1])} if all_below else {"key": key}


def put(key: bytes, value: bytes, lease: int = 0) -> Words:
    return {"key": key, "value": value, "lease": lease}


def unchanged(key: bytes, revision: int) -> Words:
    """The key was last written at that revision; 0: it does not exist."""
    return {"key": key, "target": "MOD", "mod_revision": revision}


def at_version(key: bytes, version: int) -> Words:
    return {"key": key, "target": "VERSION", "version": version}


def transaction(compare: list[Words], success: list[Words], failure: list[Words] | None = None) -> Words:
    return {"compare": compare, "success": success, "failure": failure or []}
