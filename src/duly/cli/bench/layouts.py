"""Layouts: the nodes of a measurement of latency, some of which cannot start the runs that are measured."""

from __future__ import annotations

from msgspec.structs import replace

from duly.cli.bench.worker_kinds import BUSY, Assignment

LAYOUTS = {
    "nodes": "idle nodes that plan and work, as many as --processes says",
    "scheduler": "one node that only plans, two idle workers",
    "queues": "two idle workers that serve different queues",
    "full": "a worker without a free slot beside an idle one",
    "handlers": "two idle workers, one of which does not have the handler",
}


def laid_out(layout: str, assignment: Assignment, processes: int) -> list[Assignment]:
    """The assignment of each node of a layout."""
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
