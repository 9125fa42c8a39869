"""`duly handlers`: the handlers that live nodes and jobs have, and what became of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from duly.cli.client import ask
from duly.cli.options import command, json_option, store_option
from duly.cli.output import WARN, Cell, Column, Row, write_json, write_list

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_COLUMNS = (
    Column("HANDLER", wraps=True),
    Column("NODES", wraps=True),
    Column("JOBS", right=True),
    Column("COMPLETED", right=True),
    Column("FAILED", right=True),
    Column("RETRIED", right=True),
)
_SHOWN_NODES = 3


class HandlerRow(Struct, frozen=True):
    """A handler, the ids of the live nodes that have it, how many jobs use it, and the counters of its runs."""

    name: str
    nodes: tuple[str, ...]
    jobs: int
    completed: int
    failed: int
    retried: int


@command("duly handlers", "duly handlers --json | jq '.[] | select(.nodes == []).name'")
@store_option
@json_option
def handlers(url: str | None, as_json: bool) -> None:
    """List the handlers: which live nodes have them, how many jobs use them, and the counters of their runs."""
    found = ask(url, _find)
    if as_json:
        write_json(found)
    else:
        write_list(found, _COLUMNS, _row, "no handlers are known: duly run starts a node that has some")


async def _find(scheduler: Scheduler) -> list[HandlerRow]:
    from collections import Counter  # noqa: PLC0415

    from duly.scheduler.known_names import known_handlers  # noqa: PLC0415  # the help of commands needs no scheduler

    nodes = await scheduler.nodes()
    jobs = Counter(view.handler for view in await scheduler.jobs())
    names = {*await known_handlers(await scheduler.opened()), *jobs}
    rows = []
    for name in sorted(names):
        statistics = await scheduler.handler_statistics(name)
        having = tuple(sorted(node.id for node in nodes if name in node.handlers))
        rows.append(HandlerRow(name, having, jobs[name], statistics.completed, statistics.failed, statistics.retried))
    return rows


def _row(row: HandlerRow) -> Row:
    more = len(row.nodes) - _SHOWN_NODES
    shown = [*row.nodes[:_SHOWN_NODES], *([f"{more} more"] if more > 0 else [])]
    return (
        row.name,
        ", ".join(shown) if shown else Cell("none", WARN),
        str(row.jobs),
        f"{row.completed:,}",
        Cell(f"{row.failed:,}", "red" if row.failed else ""),
        f"{row.retried:,}",
    )
