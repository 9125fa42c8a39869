"""Layouts: which nodes a measurement of latency has, so that a doorbell may reach the wrong one of them."""

from __future__ import annotations

from msgspec.structs import replace

from duly.cli.bench.stints import BUSY, Assignment

LAYOUTS = {
    "nodes": "idle nodes that plan and work, as many as --processes says",
    "scheduler": "one node that only plans, two idle workers",
    "queues": "two idle workers that serve different queues",
    "full": "a worker without a free slot beside an idle one",
    "handlers": "two idle workers, one of which does not have the handler",
}


def laid_out(layout: str, assignment: Assignment, processes: int) -> list[Assignment]:
    """What each node of a layout is told."""
    worker = replace(assignment, roles=("worker",))
    match layout:
        case "scheduler":
            return [replace(assignment, roles=("scheduler",)), worker, worker]
        case "queues":
            return [replace(worker, queues=("default",)), replace(worker, queues=("elsewhere",))]
        case "full":
            return [replace(worker, queues=("default", BUSY), concurrency=1), replace(worker, queues=("default",))]
        case "handlers":
            return [worker, replace(worker, kind="deaf")]
        case _:
            return [assignment] * processes
