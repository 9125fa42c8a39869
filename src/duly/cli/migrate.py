"""`duly migrate`: bring the store's schema up to date."""

from __future__ import annotations

import click

from duly.cli import audit_actions
from duly.cli.client import store_address
from duly.cli.options import command, namespace, store_option
from duly.cli.settings import read_settings
from duly.rules.redaction import redacted


@command("duly migrate --url postgresql://jobs.internal/duly")
@store_option
def migrate(url: str | None) -> None:
    """Apply the steps of the schema that the store lacks, each once, whoever else migrates at the same time.

    Nodes apply steps that only add when they open a store. Steps that take something away wait for this command: run it
    when the last node of the old version is gone.
    """
    import asyncio  # noqa: PLC0415  # commands are listed and helped without it

    address = store_address(url)
    applied = asyncio.run(_migrated(address, namespace() or read_settings().namespace))
    for step in applied:
        click.echo(f"applied {step}")
    if not applied:
        click.echo(f"{redacted(address)} is up to date")


async def _migrated(address: str, chosen: str | None) -> list[str]:
    from duly.backends import open_backend  # noqa: PLC0415
    from duly.model import SchedulerConfig  # noqa: PLC0415
    from duly.ports import Opening  # noqa: PLC0415
    from duly.scheduler.audit import Audit  # noqa: PLC0415

    opening = Opening(chosen or SchedulerConfig().namespace, migrates=False)
    async with open_backend(address, opening) as backend:
        applied = await backend.store.migrate()
        if applied:
            audit = Audit(backend.store, read_settings().audit_key)
            await audit.record(
                audit_actions.actor(), "migrate", "schema", backend.clock.now(), after={"steps": applied}
            )
        return applied
