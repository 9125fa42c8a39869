"""Which versions of servers there are to test on: what Duly supports, and which of many releases are taken.

Everything here is decided from numbers alone; obtaining and testing is left to others.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

# The release series that Duly supports, so far as they have appeared. A newer one that turns up is tested as well.
SUPPORTED = {
    "Redis": ("6.2", "7.0", "7.2", "7.4", "8.0", "8.2", "8.4", "8.6"),
    "Valkey": ("7.2", "8.0", "8.1", "9.0", "9.1"),
    "PostgreSQL": ("13", "14", "15", "16", "17", "18"),
}


class Release(Struct, frozen=True):
    """One release of a package that holds a server."""

    product: str
    source: str
    package: str
    number: str
    suite: str = ""
    numbered: bool = True  # as its server is; otherwise only the server tells its version

    @property
    def name(self) -> str:
        """What its folder is called."""
        return re.sub(r"[^\w.]+", "-", f"{self.source} {self.package} {self.number}").strip("-").lower()

    @property
    def series(self) -> str:
        """The release series of the server; nothing if it is not known beforehand."""
        return series_of(self.product, self.number) if self.numbered else ""


class Build(Struct, frozen=True):
    """A server that was obtained: what it says it is, where from, and its program."""

    product: str
    version: str
    source: str
    program: str

    @property
    def series(self) -> str:
        return series_of(self.product, self.version)


def series_of(product: str, version: str) -> str:
    """The release series of a version: 7.2 of Redis 7.2.4, 16 of PostgreSQL 16.2."""
    return ".".join(map(str, _order(version)[: 1 if product == "PostgreSQL" else 2]))


def supported(product: str, series: str) -> bool:
    """Whether it is one of ours, or newer than all of them."""
    return series in SUPPORTED[product] or _order(series) > _order(SUPPORTED[product][-1])


def _order(version: str) -> tuple[int, ...]:
    bare = version.rpartition(":")[2]  # Debian puts an epoch before a colon
    return tuple(int(number) for number in re.findall(r"\d+", bare))


def chosen(releases: Iterable[Release], *, every: bool) -> list[Release]:
    """The oldest and the newest release of every series in every package; or all of them.

    Where a package has numbers of another kind, the series is not known beforehand: there the oldest and the newest
    release are taken, and tested on if they turn out to be supported.
    """
    groups: dict[tuple[str, ...], list[Release]] = defaultdict(list)
    for release in releases:
        if not release.numbered or supported(release.product, release.series):
            groups[release.product, release.source, release.package, release.series].append(release)
    found: dict[Release, None] = {}
    for group in groups.values():
        ordered = sorted(group, key=lambda release: _order(release.number))
        found.update(dict.fromkeys(ordered if every else (ordered[0], ordered[-1])))
    return list(found)


def in_order(builds: Iterable[Build]) -> list[Build]:
    """The supported ones by product and version, each version once per source."""
    known = {
        (build.product, build.version, build.source): build
        for build in builds
        if supported(build.product, build.series)
    }
    return sorted(known.values(), key=lambda build: (build.product, _order(build.version), build.source))


def missing(builds: Iterable[Build]) -> list[str]:
    """The supported series of which nothing was obtained."""
    there = {(build.product, build.series) for build in builds}
    return [
        f"{product} {each}" for product, series in SUPPORTED.items() for each in series if (product, each) not in there
    ]
