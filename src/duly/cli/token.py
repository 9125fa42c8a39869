"""`duly token`: the tokens with which programs and people call the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from duly.cli.client import ask, ask_with_time, record_action, store_time
from duly.cli.options import Group, command, duration, json_option, store_option, watch_option
from duly.cli.output import BAD, GOOD, Cell, Column, note, write_json, write_list
from duly.cli.text import full, line, relative

if TYPE_CHECKING:
    from duly.api.tokens import Token
    from duly.scheduler import Scheduler

_ROLES = ("viewer", "submitter", "operator", "admin")
_COLUMNS = (
    Column("ID", importance=9),
    Column("NAME", wraps=True, importance=8),
    Column("ROLE", importance=7),
    Column("STATUS", importance=7),
    Column("CREATED", importance=3),
    Column("EXPIRES", wraps=True, importance=6),
    Column("QUEUES", wraps=True, importance=5),
    Column("HANDLERS", wraps=True, importance=4),
)


@click.group(
    cls=Group,
    examples=(
        "duly token create --role submitter --name shop",
        "duly token create --role operator --name ada --expires 90d --queue mail",
        "duly token list",
        "duly token revoke 1f7bd4e7f10a",
    ),
)
def token() -> None:
    """Create, list and revoke the tokens with which programs and people call the API."""


@command("duly token create --role submitter --name shop")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    required=True,
    help="Its permissions. Each role includes those of the previous one.",
)
@click.option("--name", default="", help="The name of its owner, for lists and the audit log.")
@click.option(
    "--expires", type=duration, metavar="DURATION", help="How long it is valid, for example 90d. Default: for ever."
)
@click.option("--queue", "queues", multiple=True, help="Only for runs of this queue; repeatable.")
@click.option("--handler", "handlers", multiple=True, help="Only for runs of this handler; repeatable.")
@click.option("--rate", metavar="RATE", help="Its rate limit: 10/s, 600/m, or with a burst 10/s:20.")
@store_option
@json_option
def create(
    role: str,
    name: str,
    expires: float | None,
    queues: tuple[str, ...],
    handlers: tuple[str, ...],
    rate: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Create a token and print it once: the store keeps only its hash."""
    from duly.api import tokens  # noqa: PLC0415
    from duly.api.permissions import TokenRole  # noqa: PLC0415
    from duly.rules.rate_limits import parse  # noqa: PLC0415

    limit = None if rate is None else parse(rate)

    async def create_and_record(scheduler: Scheduler) -> tuple[Token, str]:
        store = (await scheduler.opened()).backend.store
        now = await store_time(scheduler)
        expires_at = None if expires is None else now + timedelta(seconds=expires)
        made, text = await tokens.create(
            store,
            now,
            name or role,
            TokenRole(role),
            expires_at=expires_at,
            queues=queues,
            handlers=handlers,
            rate=limit,
        )
        shown = {"role": role, "name": made.name, "queues": made.queues, "handlers": made.handlers}
        await record_action(scheduler, "create", f"token {made.id}", after=shown)
        return made, text

    made, text = ask(url, create_and_record, creates=True)
    if as_json:
        write_json({"token": text, **_shown(made, made.created_at)})
        return
    click.echo(text)
    note("it is shown only once; send it as `Authorization: Bearer …`")


@command("duly token list")
@watch_option
@store_option
@json_option
def list_tokens(url: str | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    from duly.api import tokens  # noqa: PLC0415

    async def find(scheduler: Scheduler) -> list[Token]:
        return await tokens.tokens((await scheduler.opened()).backend.store)

    found, now = ask_with_time(url, find)
    if as_json:
        write_json([_shown(each, now) for each in found])
    else:
        empty = "no tokens yet: create one with duly token create --role admin"
        write_list(found, _COLUMNS, lambda each: _row(each, now), empty)


@command("duly token revoke 1f7bd4e7f10a")
@click.argument("token_id", metavar="ID")
@store_option
def revoke(token_id: str, url: str | None) -> None:
    """Revoke a token. All processes refuse it within a second."""
    from msgspec.structs import replace  # noqa: PLC0415

    from duly.api import tokens  # noqa: PLC0415

    async def revoke_and_record(scheduler: Scheduler) -> Token:
        store = (await scheduler.opened()).backend.store
        now = await store_time(scheduler)
        revoked = await tokens.revoke(store, token_id, now)
        if revoked.revoked_at == now:  # not if it was revoked before
            before = {"name": revoked.name, "status": replace(revoked, revoked_at=None).status(now)}
            after = {"name": revoked.name, "status": revoked.status(now)}
            await record_action(scheduler, "revoke", f"token {token_id}", before, after)
        return revoked

    revoked = ask(url, revoke_and_record)
    click.echo(f"token {revoked.id} ({line(revoked.name)}) is revoked")


def _shown(token: Token, now: datetime) -> dict[str, object]:
    fields = ("id", "name", "role", "created_at", "expires_at", "revoked_at", "queues", "handlers", "rate")
    return {field: getattr(token, field) for field in fields} | {"status": token.status(now)}


def _row(token: Token, now: datetime) -> tuple[str | Cell, ...]:
    status = token.status(now)
    return (
        token.id,
        token.name,
        token.role.value,
        Cell(status, GOOD if status == "active" else BAD),
        relative(token.created_at, now),
        "never" if token.expires_at is None else Cell(full(token.expires_at), short=f"{token.expires_at:%Y-%m-%d}"),
        "all" if token.queues is None else ", ".join(token.queues),
        "all" if token.handlers is None else ", ".join(token.handlers),
    )


token.add_command(create, "create")
token.add_command(list_tokens, "list")
token.add_command(revoke, "revoke")
