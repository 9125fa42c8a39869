"""How a lease of Duly is stored in etcd, and what a caller may do with it in its present state.

A lease has two keys. The *record* stays for ever: the last holder and its fence, so that fences grow by one with every
new holder, whatever happened in between. The *mark* belongs to an etcd lease and vanishes when that expires: while it
exists, the holder is alive, by etcd's clock alone. A mark is never written without its record, so comparing the
record's revision is enough.

Where a test passes a time, the expiry in the record decides instead of the mark.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from duly.backends.etcd.messages import KeyValue

_LONGEST = 1_000_000_000  # seconds; etcd allows nine times that
_SHORTEST = 1
_WITH_TEST_TIME = 3600  # the TTL of keys when a test passes the time


class Record(Struct, frozen=True):
    """The last holder of a lease; an empty one has released it. `ttl` is that of the etcd lease."""

    holder: str = ""
    fence: int = 0
    lease: int = 0
    ttl: int = 0
    expires: int = 0


class LeaseState(Struct, frozen=True):
    """A lease as it was found: its record, the record's revision (0: there is none), and whether its mark exists."""

    record: Record = Record()
    revision: int = 0
    marked: bool = False

    def held(self, now: int | None) -> bool:
        """Whether it has a holder now, by etcd's clock or the test's."""
        if not self.record.holder:
            return False
        return self.marked if now is None else self.record.expires > now

    def belongs_to(self, holder: str, fence: int) -> bool:
        """Whether this is the last holder, alive or not."""
        return (self.record.holder, self.record.fence) == (holder, fence)


_record = msgspec.json.Decoder(Record)


def lease_state_of(record: KeyValue | None, mark: KeyValue | None) -> LeaseState:
    if record is None:
        return LeaseState()
    return LeaseState(_record.decode(record.value), record.mod_revision, mark is not None)


def whole_seconds(ttl: float, now: int | None) -> int:
    """The TTL of the etcd lease: etcd counts whole seconds, and no lease may end early."""
    return _WITH_TEST_TIME if now is not None else min(max(math.ceil(ttl), _SHORTEST), _LONGEST)
