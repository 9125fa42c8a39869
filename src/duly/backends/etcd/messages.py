"""Requests to the v3 JSON gateway and its answers, as structs.

Keys and values travel in base64, which msgspec applies to bytes. Numbers of 64 bits come as strings, and zero, false or
empty fields are left out: every field has a default, and decoding is lax about numbers.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from duly.backends.etcd.errors import ErrorReply


class Header(Struct, frozen=True):
    revision: int = 0


class KeyValue(Struct, frozen=True):
    """A key as it is now. `version` counts its writes since it was created; revisions are the whole store's."""

    key: bytes = b""
    value: bytes = b""
    version: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeReply(Struct, frozen=True):
    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()

    @property
    def first(self) -> KeyValue | None:
        return self.kvs[0] if self.kvs else None


class StepReply(Struct, frozen=True):
    response_range: RangeReply | None = None


class TransactionReply(Struct, frozen=True):
    """`succeeded`: the comparison held, and the first branch was executed."""

    succeeded: bool = False
    responses: tuple[StepReply, ...] = ()

    def found(self, number: int) -> KeyValue | None:
        """What the range of that number in the branch found."""
        ranged = self.responses[number].response_range
        return None if ranged is None else ranged.first


class PutReply(Struct, frozen=True):
    prev_kv: KeyValue | None = None


class LeaseReply(Struct, frozen=True):
    """An etcd lease; a TTL of zero or less means that there is none."""

    id: int = field(name="ID", default=0)
    ttl: int = field(name="TTL", default=0)


class KeepAliveReply(Struct, frozen=True):
    result: LeaseReply = LeaseReply()


class Token(Struct, frozen=True):
    token: str = ""


class Status(Struct, frozen=True):
    version: str = ""
    leader: int = 0
    errors: tuple[str, ...] = ()


class Members(Struct, frozen=True):
    members: tuple[Any, ...] = ()


class Event(Struct, frozen=True):
    type: str = "PUT"
    kv: KeyValue = KeyValue()


class WatchResult(Struct, frozen=True):
    header: Header = Header()
    canceled: bool = False
    events: tuple[Event, ...] = ()


class WatchMessage(Struct, frozen=True):
    """One line of a watch."""

    result: WatchResult = WatchResult()
    error: ErrorReply | None = None


Request = dict[str, Any]


def get(key: bytes, *, prefix: bool = False) -> Request:
    """A key, or all keys with this prefix."""
    return {"key": key, "range_end": key[:-1] + bytes([key[-1] + 1])} if prefix else {"key": key}


def put(key: bytes, value: bytes, lease: int = 0) -> Request:
    return {"key": key, "value": value, "lease": lease}


def unchanged(key: bytes, revision: int) -> Request:
    """The comparison that the key was last written at that revision; 0: it does not exist."""
    return {"key": key, "target": "MOD", "mod_revision": revision}


def at_version(key: bytes, version: int) -> Request:
    return {"key": key, "target": "VERSION", "version": version}


def put_if(compare: list[Request], *puts: Request) -> Request:
    """Write these if the comparisons hold; otherwise read the key of the first."""
    failure = [{"request_range": get(puts[0]["key"])}]
    return {"compare": compare, "success": [{"request_put": each} for each in puts], "failure": failure}
