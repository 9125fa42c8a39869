"""`duly top`: a live view of a cluster on the whole screen."""

from __future__ import annotations

from duly.cli.options import command, store_option


@command("duly top", "duly top --url redis://cache.example.org")
@store_option
def top(url: str | None) -> None:
    """Show jobs, running and failed runs, queues, nodes and lateness, live, on the whole screen.

    Keys: Tab or 1 to 6 choose a list, the arrow keys a line; e explains it, p pauses or resumes, t triggers, c cancels,
    r redrives; ? shows all keys, q quits. Changes are confirmed first. The store is read about once a second.
    """
    from duly.cli.top.loop import run_top  # noqa: PLC0415  # the help needs no scheduler

    run_top(url)
