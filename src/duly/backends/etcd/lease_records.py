"""Rights: how a named lease is kept in etcd, and what a caller may do with it as it stands.

Of every name there are two keys. The *record* stays for ever: the last holder and its fence, so that fences grow by
one with every new holder, whatever happened in between. The *mark* hangs on a lease of etcd's own and is gone when that
runs out: while it is there, the holder is alive, and only etcd's clock has a say in it. A mark is never written without
its record, so comparing the record's revision is enough.

Where a caller brings its own time (tests), the expiry in the record decides instead, and the mark says nothing.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from duly.backends.etcd.messages import Pair

_LONGEST = 1_000_000_000  # seconds; etcd itself allows nine times that
_SHORTEST = 1
_BY_HAND = 3600  # the life of keys whose time a caller moves by hand


class Record(Struct, frozen=True):
    """The last holder of a name; an empty one has given it back. `ttl` is what etcd's lease was asked for."""

    holder: str = ""
    fence: int = 0
    lease: int = 0
    ttl: int = 0
    expires: int = 0


class Standing(Struct, frozen=True):
    """A name as it was found: its record, the record's revision (0: there is none), and whether its mark is there."""

    record: Record = Record()
    revision: int = 0
    marked: bool = False

    def held(self, now: int | None) -> bool:
        """Whether somebody has it at this moment, by etcd's clock or the caller's."""
        if not self.record.holder:
            return False
        return self.marked if now is None else self.record.expires > now

    def belongs_to(self, holder: str, fence: int) -> bool:
        """Whether nobody came after this holder, alive or not."""
        return (self.record.holder, self.record.fence) == (holder, fence)


_record = msgspec.json.Decoder(Record)


def standing_of(record: Pair | None, mark: Pair | None) -> Standing:
    if record is None:
        return Standing()
    return Standing(_record.decode(record.value), record.mod_revision, mark is not None)


def whole_seconds(ttl: float, now: int | None) -> int:
    """What etcd's lease is asked for: it counts in seconds, and none may end early."""
    return _BY_HAND if now is not None else min(max(math.ceil(ttl), _SHORTEST), _LONGEST)
