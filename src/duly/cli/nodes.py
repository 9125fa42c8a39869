"""`duly nodes`: the processes that are alive."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from duly.cli.client import ask_with_time
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import GOOD, Cell, Column, Row, write_json, write_list
from duly.cli.text import relative
from duly.model import Node

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.views import Health

_COLUMNS = (
    Column("NODE", wraps=True, importance=9, least=20),
    Column("HOST", wraps=True, importance=3),
    Column("PID", right=True, importance=2),
    Column("ROLES", importance=5),
    Column("QUEUES", wraps=True, importance=4),
    Column("LABELS", wraps=True, importance=3),
    Column("BUSY", right=True, importance=8),
    Column("LEADER", importance=7),
    Column("STARTED", importance=6),
    Column("VERSION", importance=1),
)


@command("duly nodes")
@watch_option
@store_option
@json_option
def nodes(url: str | None, as_json: bool) -> None:
    """List the live nodes: their roles, how busy they are, and which one leads.

    Where planning is spread over several shards, LEADER also says how many shards a node leads.
    """
    (found, health), now = ask_with_time(url, _find)
    if as_json:
        write_json(found)
    else:
        write_list(found, _COLUMNS, lambda node: _row(node, health, now), "no node is alive: duly run starts one")


async def _find(scheduler: Scheduler) -> tuple[list[Node], Health]:
    return await scheduler.nodes(), await scheduler.health()


def _leads(node: Node, health: Health) -> str | Cell:
    words = ["leads"] if node.id == health.leader else []
    if led := sum(leader == node.id for leader in health.shards.values()):
        words.append(f"{led} of {len(health.shards)} shards")
    return Cell(", ".join(words), GOOD) if words else "–"


def _row(node: Node, health: Health, now: datetime) -> Row:
    busy, slots = node.metrics.get("running"), node.metrics.get("slots", node.capacity)
    return (
        node.id,
        node.host,
        str(node.pid),
        ", ".join(role.value for role in node.roles),
        "all" if node.queues is None else ", ".join(node.queues),
        ", ".join(f"{name}={value}" for name, value in sorted(node.labels.items())) or "–",
        "–" if busy is None else f"{busy:.0f}/{slots:.0f}",
        _leads(node, health),
        relative(node.started_at, now),
        node.version or "–",
    )
