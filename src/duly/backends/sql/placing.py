"""Placement: runs that are not placed yet, and runs that wait for one node.

The line of a run says which node it waits for (`codec.line_of`). Assigning it moves it from under its hold into that
node's line; taking it back is the reverse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from duly.backends.codec import queue_of
from duly.backends.sql.moves import Leaving, by_ids, by_seqs, hold, leave, relocate, wait
from duly.backends.sql.notify import WORK
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Unit
from duly.model import Assignment, Run, Share, State
from duly.model.holds import UNPLACED
from duly.ports import FROZEN

_RUNNING = """
SELECT {line}, count(*) FROM {ns}.claims AS c INNER JOIN {ns}.runs AS r ON r.seq = c.seq GROUP BY {line}
"""


async def held(unit: Unit, key: str, limit: int, after: Run | None, now: int) -> list[Run]:
    """Runs under a hold, in the order of `rules.placement.placing_order`; those after one of them."""
    seqs = await unit.dialect.first_held(unit, key, limit, after, now)
    return [record.run for record in await by_seqs(unit, seqs)]


async def assign(unit: Unit, assignments: Sequence[Assignment]) -> list[bool]:
    """Let runs that are not placed yet wait for their nodes; which of them were not."""
    nodes = {each.run_id: each.node for each in reversed(assignments)}
    found = await by_ids(unit, nodes)
    records = [record for record in found.values() if record.run.hold == UNPLACED]
    left = await leave(unit, records)
    taken = [record for record in records if record.seq in left]
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for record in taken:
        lines[f"{record.run.queue}@{nodes[record.run.id]}"].append(record.seq)
    for line, seqs in lines.items():
        await relocate(unit, seqs, line)
    await wait(unit, taken)
    unit.rings |= WORK if taken else 0
    given = {record.run.id for record in taken}
    answers: list[bool] = []
    for each in assignments:
        answers.append(each.run_id in given)
        given.discard(each.run_id)
    return answers


async def unassign(unit: Unit, node: str, limit: int) -> int:
    """Take runs that wait for a node back; how many."""
    rows = await unit.all("{waiting_for}", node, limit)
    await unit.locks.groups({row[1] for row in rows})
    found = await by_seqs(unit, [row[0] for row in rows])
    records = [each for each in found if each.run.state is State.PENDING and each.run.hold is None]
    leaving = await Leaving.of(unit, records)
    left = await leave(unit, records)
    taken = [record for record in records if record.seq in left]
    await hold(unit, taken, UNPLACED)
    await leaving.move_up(record for record in taken if record.entrant)
    unit.rings |= WORK if taken else 0
    return len(taken)


class _Sum(Struct):
    """The runs of a node during counting."""

    due: int = 0
    upcoming: int = 0


async def assigned(unit: Unit, now: int | None) -> dict[str, Share]:
    """What each node has been assigned."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    stopped = await paused(unit)
    for line, waiting, due in await unit.all("{node_depths}", now):
        sums[_node(line)].due += 0 if not stopped.isdisjoint((queue_of(line), FROZEN)) else due
        sums[_node(line)].upcoming += waiting - due
    for line, running in await unit.all(_RUNNING):
        sums[_node(line)].due += running
    return {node: Share(entry.due, entry.upcoming) for node, entry in sums.items() if node}


def _node(line: str) -> str:
    return line.partition("@")[2]
