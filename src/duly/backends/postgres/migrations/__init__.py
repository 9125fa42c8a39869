"""The schema: numbered steps in this folder, applied in order, each in one transaction that also records it.

Many processes may open a new database at once: the one that has the lock applies a step, the others find it recorded.

Old and new code run side by side by this rule. A step *expands* unless its file is named `….contract.sql`: it only
adds, and older code continues to work. A step that *contracts* removes what older code still uses; it
comes in a later release than the code that stopped using it. Opening applies what expands, up to the first that
contracts; `duly migrate`, run when the last old node is gone, applies all. Code that finds unknown steps continues
to work if all of them expand, and refuses if one of them contracts.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import resources

from msgspec import Struct

from duly.backends.marks import refused
from duly.backends.postgres.connection import Connection, Connections
from duly.backends.postgres.unit import PostgresTexts
from duly.backends.sql.moving.transfer import MARK, mark_of
from duly.errors import BackendError

LANE = "store"
_PATIENCE = 600.0  # seconds that a step may take, including the wait for another process that applies it
_CONTRACT = ".contract"
_SCHEMA_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
_TABLE_EXISTS = "SELECT to_regclass($1) IS NOT NULL"
# One at a time per database and schema. Held by the transaction, so a pooler cannot lose it.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('duly schema ' || $1, 0))"
_CREATE = """
CREATE TABLE IF NOT EXISTS {ns}.schema (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)
"""
_APPLIED = "SELECT version, name FROM {ns}.schema ORDER BY version"
_RECORD = """
INSERT INTO {ns}.schema (version, name, applied_at)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
"""


class Step(Struct, frozen=True):
    """One step of the schema: its number, the name of its file, and its statements."""

    version: int
    name: str
    script: str = ""

    @property
    def contracts(self) -> bool:
        return self.name.endswith(_CONTRACT)


@cache
def steps() -> tuple[Step, ...]:
    """All steps this code knows, in order."""
    files = resources.files("duly.backends.postgres.migrations").iterdir()
    scripts = {file.name.removesuffix(".sql"): file.read_text() for file in files if file.name.endswith(".sql")}
    return tuple(Step(int(name[:4]), name, scripts[name]) for name in sorted(scripts))


async def migrate(
    connections: Connections, known: tuple[Step, ...] | None = None, *, contract: bool = True
) -> list[str]:
    """Apply what is missing; the names of the steps applied. Without `contract`, up to the first that contracts."""
    applied: list[str] = []
    wanted = steps() if known is None else known
    while True:
        name = await connections[LANE].transact(partial(_apply_next, connections, wanted, contract), timeout=_PATIENCE)
        if name is None:
            return applied
        applied.append(name)


async def check(connections: Connections, known: tuple[Step, ...] | None = None) -> None:
    """Make sure that this code can use the schema, or raise an error that says what to do. Called at every opening."""
    wanted = steps() if known is None else known
    present = await connections[LANE].run(partial(applied_steps, texts=connections.texts))
    if _first_missing(present, wanted, contract=False) is not None and connections.place.migrates:
        await migrate(connections, wanted, contract=False)
        present = await connections[LANE].run(partial(applied_steps, texts=connections.texts))
    refuse_strange(present, wanted, connections)
    missing = _first_missing(present, wanted, contract=False)
    if missing is not None:
        raise BackendError(
            f"{connections.place.shown} lacks step {missing.name} of the schema in namespace"
            f" {connections.texts.namespace!r}: run `duly migrate`, or leave migrate=no out of the URL"
        )


async def applied_steps(connection: Connection, texts: PostgresTexts) -> list[Step]:
    """The steps recorded as applied."""
    if not await connection.fetchval(_TABLE_EXISTS, f"{texts.schema}.schema"):
        return []
    return [Step(row[0], row[1]) for row in await connection.fetch(texts[_APPLIED])]


def refuse_strange(present: list[Step], known: tuple[Step, ...], connections: Connections) -> None:
    """Newer steps are fine as long as they only add. A store that is not in use raises the error of its mark."""
    if present and present[-1].version == MARK and (mark := mark_of(present[-1].name)) is not None:
        raise refused(mark, connections.place.shown)
    latest = known[-1].version if known else 0
    strange = [step for step in present if step.version > latest and step.contracts]
    if strange:
        raise BackendError(
            f"{connections.place.shown} has schema step {strange[-1].name} in namespace"
            f" {connections.texts.namespace!r}, which takes away what this Duly (it knows version {latest}) still uses:"
            " install the Duly that migrated it"
        )


def _first_missing(present: list[Step], known: tuple[Step, ...], *, contract: bool) -> Step | None:
    """The next step to apply: without `contract`, what comes before the first missing one that contracts."""
    version = present[-1].version if present else 0
    missing = next((step for step in known if step.version > version), None)
    return None if missing is None or (missing.contracts and not contract) else missing


async def _apply_next(
    connections: Connections, known: tuple[Step, ...], contract: bool, connection: Connection
) -> str | None:
    texts = connections.texts
    await connection.execute(_LOCK, texts.namespace)
    present = await applied_steps(connection, texts)
    refuse_strange(present, known, connections)
    step = _first_missing(present, known, contract=contract)
    if step is None:
        return None
    if not await connection.fetchval(_SCHEMA_EXISTS, texts.namespace):  # CREATE … IF NOT EXISTS needs the right anyway
        await connection.execute(f"CREATE SCHEMA {texts.schema}")
    await connection.execute(texts[_CREATE])
    await connection.execute(step.script.replace("{ns}", texts.schema))
    await connection.execute(texts[_RECORD], step.version, step.name)
    return step.name
