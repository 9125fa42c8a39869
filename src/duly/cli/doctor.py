"""`duly doctor`: checks of this installation and of the store."""

from __future__ import annotations

import sys
import zoneinfo
from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

import click

from duly.cli.client import address_of, ask
from duly.cli.group import one_line
from duly.cli.options import command, json_option, store_option
from duly.cli.output import BAD, GOOD, WARN, write_json, write_line
from duly.cli.text import full, line
from duly.errors import DulyError
from duly.ports import Finding, Severity
from duly.rules.redaction import redacted
from duly.version import __version__

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.views import Health

_MARKS = {Severity.OK: ("ok", GOOD), Severity.WARNING: ("warning", WARN), Severity.PROBLEM: ("problem", BAD)}
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)  # a correct clock shows a later time


@command("duly doctor --url sqlite:///duly.db")
@store_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """Check this installation and the store.

    The exit code is 1 if there is a problem; a warning is not a problem.
    """
    findings = [*_installation(), _clock(datetime.now(UTC)), _zones(), *_store(url)]
    if as_json:
        write_json(findings)
    else:
        _write(findings)
    if any(finding.severity is Severity.PROBLEM for finding in findings):
        ctx.exit(1)


def _write(findings: list[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.severity]
        write_line(line(finding.message), f"{click.style(f'{mark:<8}', fg=colour)} {finding.subject:<{width}}  ")


def _installation() -> list[Finding]:
    python = ".".join(str(part) for part in sys.version_info[:3])
    packages = ", ".join(f"{name} {_version(name)}" for name in ("msgspec", "cronsim", "click", "rich"))
    return [
        Finding(Severity.OK, "duly", __version__),
        Finding(Severity.OK, "python", f"{python} ({sys.executable})"),
        Finding(Severity.OK, "packages", packages),
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "is not installed"


def _clock(now: datetime) -> Finding:
    if now < _RELEASED:
        return Finding(Severity.PROBLEM, "clock", f"says {full(now)}, which is long ago: set it, preferably with NTP")
    return Finding(Severity.OK, "clock", f"says {full(now)}")


def _zones() -> Finding:
    known = len(zoneinfo.available_timezones())
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        return Finding(Severity.PROBLEM, "time zones", "the zone database is missing: pip install tzdata")
    return Finding(Severity.OK, "time zones", f"{known} zones, tzdata {_version('tzdata')}")


def _store(url: str | None) -> list[Finding]:
    try:
        found = ask(url, _examine)
    except DulyError as exc:
        return [Finding(Severity.PROBLEM, "store", one_line(exc))]
    address = address_of(url)
    parts = [Finding(Severity.OK, name, redacted(where)) for name, where in address.parts.items()]
    return [Finding(Severity.OK, "store", redacted(address.store)), *parts, *found]


async def _examine(scheduler: Scheduler) -> list[Finding]:
    found = await scheduler.examine()
    nodes, health = await scheduler.nodes(), await scheduler.health()
    if not nodes:
        return [
            *found,
            Finding(Severity.WARNING, "nodes", "no node is alive: nothing is planned or run; start one with duly run"),
        ]
    alive = f"{len(nodes)} alive, {health.leader} leads" if health.leader else f"{len(nodes)} alive"
    led = Severity.OK if health.leader else Severity.WARNING
    words = alive if health.leader else f"{alive}, no leader: nothing is planned"
    return [*found, Finding(led, "nodes", words), *_shards(health)]


def _shards(health: Health) -> list[Finding]:
    """Which node leads which shard, where there are several."""
    if not health.shards:
        return []
    unled = [shard for shard, leader in health.shards.items() if leader is None]
    if unled:
        return [Finding(Severity.WARNING, "shards", f"nobody leads {', '.join(unled)}: their jobs are not planned")]
    led = Counter(health.shards.values())
    return [Finding(Severity.OK, "shards", ", ".join(f"{node} leads {number}" for node, number in led.items()))]
