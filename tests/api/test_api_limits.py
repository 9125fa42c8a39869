"""Tokens limited to queues or handlers: every role, every route, every kind of limit; reading, writing, leaking.

Two teams share a store. Whatever belongs to the other team has "vault" in its name, so that a leak can be seen in any
answer. A route that is not in the table of calls fails the first test.
"""

import base64
import binascii
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.api.api_support import Answer, Caller, new_token
from tests.api.events_support import Follower

from duly import Every, Scheduler, SchedulerConfig
from duly.api import Api, ApiSettings
from duly.api.permissions import GRANTS, TokenRole
from duly.api.routes import ROUTES
from duly.model.published_event import EVENTS, PublishedEventKind

LIMITS = {
    "queue": {"queues": ["ours"]},
    "handler": {"handlers": ["our_handler"]},
    "both": {"queues": ["ours"], "handlers": ["our_handler"]},
}
NEVER = "00000000000000000000000000"
PAST_DAY = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}
EVERY_DAY = "30 2 * * *"


class VaultSchedule:
    """A schedule that only code can compute: its job has a planning lease with a name of its own."""

    def next_run(self, after: datetime) -> datetime:
        return after + timedelta(days=1)


def two_teams() -> Scheduler:
    scheduler = Scheduler("memory://", SchedulerConfig(lock_ttl=5.0, labels={"vault_label": "yes"}))

    @scheduler.job(queue="ours")
    async def our_handler(what: str = "") -> str:
        return what

    @scheduler.job(queue="vault_queue")
    async def vault_handler(vault_parameter: str = "") -> str:
        return vault_parameter

    @scheduler.job(VaultSchedule(), queue="vault_queue")
    async def vault_custom() -> None: ...

    @scheduler.job(Every(hours=6), queue="vault_queue", tags=["vault_tag"])
    async def vault_code() -> None: ...

    return scheduler


@dataclass
class World:
    """A store with jobs and runs of both teams, and who calls."""

    scheduler: Scheduler
    admin: Caller
    names: dict[str, str] = field(default_factory=dict)

    async def make(self) -> None:
        for team, queue in (("our", "ours"), ("vault", "vault_queue")):
            for name in (f"{team}_job", f"{team}_spare"):
                body = {"name": name, "handler": f"{team}_handler", "queue": queue, "schedule": EVERY_DAY}
                assert (await self.admin.post("/jobs", body)).status == 201
            self.names[f"{team}_run"] = await self._run(f"{team}_handler", dedupe_key=f"{team}_key", delay=3600)
            self.names[f"{team}_other"] = await self._run(f"{team}_handler", delay=3600)
            self.names[f"{team}_ended"] = await self._run(f"{team}_handler", delay=3600)
            assert (await self.admin.post(f"/runs/{self.names[f'{team}_ended']}/cancel")).status == 200
        # A handler of ours on another queue: outside of a limit to queues, inside of one to handlers.
        self.names["mixed_run"] = await self._run("our_handler", queue="mixed", dedupe_key="mixed", delay=3600)
        assert (await self.admin.post("/queues/vault_queue/pause")).status == 200

    async def _run(self, handler: str, **fields) -> str:
        answer = await self.admin.post("/runs", {"handler": handler, **fields})
        assert answer.status == 201, answer
        return answer.json["id"]

    async def theirs(self) -> Any:
        """All that belongs to the other team, as the store has it."""
        store = (await self.scheduler.opened()).backend.store
        jobs = [job for job in await store.jobs() if job.spec.queue == "vault_queue"]
        runs = [await store.run(run) for name, run in self.names.items() if not name.startswith("our")]
        return jobs, runs, await store.paused()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    scheduler = two_teams()
    async with scheduler:
        world = World(scheduler, Caller(Api(scheduler), await new_token(scheduler, "admin")))
        await world.make()
        yield world


# --- the table: how each route is called on what is ours, theirs, and nobody's

CONCERNS_ALL = "all"  # refused to limited tokens
OPEN = "open"  # answers everybody, without a word about the other team


@dataclass(frozen=True)
class Calls:
    """Calls of one route. `own` succeed; `foreign` answer exactly as `absent` do, but for the names in the call."""

    own: tuple = ()
    foreign: tuple = ()
    absent: tuple = ()
    kind: str = ""
    queues: bool = False  # whether it is about queues, which are not there for tokens limited to handlers
    many: bool = False  # whether it is about all that match: what is foreign does not match, and that is no error


def target(*targets, body=None):
    return tuple((each, body) for each in targets)


TABLE: dict[tuple[str, str], Calls] = {
    ("GET", "/jobs"): Calls(own=target("/jobs", "/jobs?limit=1", "/jobs?queue=ours", "/jobs?status=pending&limit=1")),
    ("POST", "/jobs"): Calls(
        own=(("/jobs", {"handler": "our_handler"}), ("/jobs", [{"handler": "our_handler"}])),
        foreign=(("/jobs", {"handler": "vault_handler"}), ("/jobs", [{"handler": "vault_handler", "queue": "ours"}])),
        absent=(("/jobs", {"handler": "nobody_handler"}), ("/jobs", [{"handler": "nobody_handler", "queue": "ours"}])),
    ),
    ("GET", "/jobs/{id}"): Calls(
        own=target("/jobs/our_job", "/jobs/{our_run}"),
        foreign=target("/jobs/vault_job", "/jobs/vault_code", "/jobs/{vault_run}"),
        absent=target("/jobs/nobody_job", "/jobs/nobody_code", f"/jobs/{NEVER}"),
    ),
    ("DELETE", "/jobs/{id}"): Calls(
        own=target("/jobs/our_spare", "/jobs/{our_other}"),
        foreign=target("/jobs/vault_job", "/jobs/vault_code", "/jobs/{vault_run}", "/jobs/{vault_ended}"),
        absent=target("/jobs/nobody_job", "/jobs/nobody_code", f"/jobs/{NEVER}", f"/jobs/{NEVER}"),
    ),
    ("GET", "/jobs/{id}/runs"): Calls(
        own=target("/jobs/our_job/runs"),
        foreign=target("/jobs/vault_job/runs", "/jobs/{vault_run}/runs"),
        absent=target("/jobs/nobody_job/runs", f"/jobs/{NEVER}/runs"),
    ),
    ("GET", "/jobs/{id}/explain"): Calls(
        own=target("/jobs/our_job/explain", "/jobs/our_job/explain?at=2027-01-01T00:00:00Z", "/jobs/{our_run}/explain"),
        foreign=target("/jobs/vault_job/explain", "/jobs/vault_code/explain", "/jobs/{vault_run}/explain"),
        absent=target("/jobs/nobody_job/explain", "/jobs/nobody_code/explain", f"/jobs/{NEVER}/explain"),
    ),
    ("GET", "/runs/{id}/logs"): Calls(
        own=target("/runs/{our_run}/logs", "/runs/{our_run}/logs?attempt=1"),
        foreign=target("/runs/{vault_run}/logs"),
        absent=target(f"/runs/{NEVER}/logs"),
    ),
    ("GET", "/runs/{id}/explain"): Calls(
        own=target("/runs/{our_run}/explain"),
        foreign=target("/runs/{vault_run}/explain"),
        absent=target(f"/runs/{NEVER}/explain"),
    ),
    ("POST", "/jobs/{id}/pause"): Calls(
        own=target("/jobs/our_job/pause"),
        foreign=target("/jobs/vault_job/pause", "/jobs/vault_code/pause"),
        absent=target("/jobs/nobody_job/pause", "/jobs/nobody_code/pause"),
    ),
    ("POST", "/jobs/{id}/resume"): Calls(
        own=target("/jobs/our_job/resume"),
        foreign=target("/jobs/vault_job/resume"),
        absent=target("/jobs/nobody_job/resume"),
    ),
    ("POST", "/jobs/{id}/trigger"): Calls(
        own=target("/jobs/our_job/trigger"),
        foreign=(*target("/jobs/vault_job/trigger"), ("/jobs/vault_job/trigger", {"payload": {"odd": 1}})),
        absent=(*target("/jobs/nobody_job/trigger"), ("/jobs/nobody_job/trigger", {"payload": {"odd": 1}})),
    ),
    ("POST", "/runs"): Calls(
        own=(("/runs", {"handler": "our_handler"}), ("/runs", [{"handler": "our_handler"}] * 3)),
        foreign=(
            ("/runs", {"handler": "vault_handler"}),
            ("/runs", {"handler": "vault_handler", "queue": "ours"}),  # any handler, by naming one's own queue
            ("/runs", {"handler": "vault_job", "queue": "ours"}),
            ("/runs", {"handler": "vault_handler", "payload": {"odd": 1}}),  # what it takes is not told
            ("/runs", [{"handler": "our_handler"}, {"handler": "vault_handler", "queue": "ours"}]),
        ),
        absent=(
            ("/runs", {"handler": "nobody_handler"}),
            ("/runs", {"handler": "nobody_handler", "queue": "ours"}),
            ("/runs", {"handler": "nobody_job", "queue": "ours"}),
            ("/runs", {"handler": "nobody_handler", "payload": {"odd": 1}}),
            ("/runs", [{"handler": "our_handler"}, {"handler": "nobody_handler", "queue": "ours"}]),
        ),
    ),
    ("GET", "/runs"): Calls(own=target("/runs", "/runs?limit=1", "/runs?queue=ours", "/runs?handler=our_handler")),
    ("GET", "/runs/{id}"): Calls(
        own=target("/runs/{our_run}"), foreign=target("/runs/{vault_run}"), absent=target(f"/runs/{NEVER}")
    ),
    ("POST", "/runs/{id}/cancel"): Calls(
        own=target("/runs/{our_run}/cancel"),
        foreign=target("/runs/{vault_run}/cancel", "/runs/{vault_ended}/cancel"),
        absent=target(f"/runs/{NEVER}/cancel", f"/runs/{NEVER}/cancel"),
    ),
    ("POST", "/runs/{id}/redrive"): Calls(
        own=target("/runs/{our_ended}/redrive"),
        foreign=target("/runs/{vault_ended}/redrive", "/runs/{vault_run}/redrive"),
        absent=target(f"/runs/{NEVER}/redrive", f"/runs/{NEVER}/redrive"),
    ),
    ("POST", "/runs/redrive"): Calls(
        own=(("/runs/redrive", {"status": ["cancelled"]}),),
        foreign=(("/runs/redrive", {"status": ["cancelled"], "handler": "vault_handler"}),),
        absent=(("/runs/redrive", {"status": ["cancelled"], "handler": "nobody_handler"}),),
        many=True,
    ),
    ("POST", "/runs/count"): Calls(
        own=(("/runs/count", {"queue": "ours"}), ("/runs/count", {"status": ["pending"]})),
        foreign=(("/runs/count", {"handler": "vault_handler"}), ("/runs/count", {"tag": "vault_tag"})),
        absent=(("/runs/count", {"handler": "nobody_handler"}), ("/runs/count", {"tag": "nobody_tag"})),
        many=True,
    ),
    ("POST", "/runs/cancel"): Calls(
        own=(("/runs/cancel", {"handler": "our_handler", "min_attempt": 5}),),
        foreign=(
            ("/runs/cancel", {"handler": "vault_handler"}),
            ("/runs/cancel", {"status": ["pending"], "where": ["payload.vault_parameter:x"]}),
            ("/runs/cancel", {"ids": ["{vault_run}"]}),
        ),
        absent=(
            ("/runs/cancel", {"handler": "nobody_handler"}),
            ("/runs/cancel", {"status": ["pending"], "where": ["payload.nobody_parameter:x"]}),
            ("/runs/cancel", {"ids": [NEVER]}),
        ),
        many=True,
    ),
    ("POST", "/runs/purge"): Calls(
        own=(("/runs/purge", {"status": ["failed"], "before": "2020-01-01T00:00:00Z"}),), kind=CONCERNS_ALL
    ),
    ("POST", "/jobs/pause"): Calls(
        own=(("/jobs/pause", {"names": ["our_job"]}),),
        foreign=(("/jobs/pause", {"names": ["vault_job", "vault_code"]}), ("/jobs/pause", {"tag": "vault_tag"})),
        absent=(("/jobs/pause", {"names": ["nobody_job", "nobody_code"]}), ("/jobs/pause", {"tag": "nobody_tag"})),
        many=True,
    ),
    ("POST", "/jobs/resume"): Calls(
        own=(("/jobs/resume", {"names": ["our_job"]}),),
        foreign=(("/jobs/resume", {"names": ["vault_job"]}),),
        absent=(("/jobs/resume", {"names": ["nobody_job"]}),),
        many=True,
    ),
    ("GET", "/jobs/{id}/history"): Calls(
        own=target("/jobs/our_job/history"),
        foreign=target("/jobs/vault_job/history", "/jobs/vault_code/history"),
        absent=target("/jobs/nobody_job/history", "/jobs/nobody_code/history"),
    ),
    ("POST", "/jobs/{id}/rollback"): Calls(
        foreign=target("/jobs/vault_job/rollback", "/jobs/vault_code/rollback"),
        absent=target("/jobs/nobody_job/rollback", "/jobs/nobody_code/rollback"),
    ),
    ("POST", "/jobs/{id}/backfill"): Calls(
        own=(("/jobs/our_job/backfill", PAST_DAY),),
        foreign=(("/jobs/vault_job/backfill", PAST_DAY),),
        absent=(("/jobs/nobody_job/backfill", PAST_DAY),),
    ),
    ("POST", "/jobs/{id}/restore"): Calls(
        foreign=target("/jobs/vault_job/restore", "/jobs/vault_code/restore"),
        absent=target("/jobs/nobody_job/restore", "/jobs/nobody_code/restore"),
    ),
    ("GET", "/queues"): Calls(own=target("/queues")),
    ("POST", "/queues/{name}/pause"): Calls(
        own=target("/queues/ours/pause"),
        foreign=target("/queues/vault_queue/pause"),
        absent=target("/queues/nobody_queue/pause"),
        queues=True,
    ),
    ("POST", "/queues/{name}/resume"): Calls(
        own=target("/queues/ours/resume"),
        foreign=target("/queues/vault_queue/resume"),
        absent=target("/queues/nobody_queue/resume"),
        queues=True,
    ),
    ("GET", "/nodes"): Calls(own=target("/nodes"), kind=OPEN),
    ("GET", "/events"): Calls(kind="stream"),  # see below
    ("GET", "/config"): Calls(own=target("/config"), kind=CONCERNS_ALL),
    ("GET", "/config/{name}"): Calls(
        own=target("/config/max_losses"),
        foreign=target("/config/handler_rates"),
        absent=target("/config/nothing"),
        kind=CONCERNS_ALL,
    ),
    ("PUT", "/config/{name}"): Calls(
        own=(("/config/max_losses", {"value": 4}),),
        foreign=(("/config/handler_rates", {"value": "vault_handler=1/s"}),),
        absent=(("/config/nothing", {"value": "vault_handler=1/s"}),),
        kind=CONCERNS_ALL,
    ),
    ("DELETE", "/config/{name}"): Calls(
        own=target("/config/max_losses"),
        foreign=target("/config/handler_rates"),
        absent=target("/config/nothing"),
        kind=CONCERNS_ALL,
    ),
    ("GET", "/audit"): Calls(own=target("/audit"), kind=CONCERNS_ALL),
    ("POST", "/preview"): Calls(own=(("/preview", {"schedule": EVERY_DAY}),), kind=OPEN),
    ("GET", "/health"): Calls(own=target("/health"), kind=OPEN),
    ("GET", "/livez"): Calls(own=target("/livez"), kind=OPEN),
    ("GET", "/readyz"): Calls(own=target("/readyz"), kind=OPEN),
    ("GET", "/metrics"): Calls(own=target("/metrics"), kind=CONCERNS_ALL),
    ("GET", "/metrics/prometheus"): Calls(own=target("/metrics/prometheus"), kind=CONCERNS_ALL),
    ("GET", "/leader"): Calls(own=target("/leader"), kind=OPEN),
}

PERMISSIONS = {(route.method, route.path): route.permission for route in ROUTES}


def test_every_route_is_in_the_table():
    assert TABLE.keys() == PERMISSIONS.keys()
    for key, calls in TABLE.items():
        assert len(calls.foreign) == len(calls.absent), key
        variable = "{" in key[1]
        assert calls.foreign or not variable, f"{key} names one thing: say how it answers for one of another team"


# --- calling


def filled(world: World, body: Any) -> Any:
    """A body with the ids of the runs that it names."""
    if not isinstance(body, dict) or "ids" not in body:
        return body
    return {**body, "ids": [each.format(**world.names) for each in body["ids"]]}


async def called(caller: Caller, world: World, method: str, call: tuple[str, Any]) -> Answer:
    path, body = call
    answer = await caller(method, path.format(**world.names), filled(world, body))
    assert answer.status < 500, (method, path, answer)
    return answer


def leaks(world: World, call: tuple[str, Any], answer: Answer) -> set[str]:
    """What an answer tells about the other team that the caller did not say itself."""
    told = answer.body + b"\n" + b"\n".join(value.encode() for value in answer.headers.values())
    for part in re.findall(rb"[A-Za-z0-9_-]{16,}", told):
        with suppress(binascii.Error):
            told += b"\n" + base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    said = f"{call[0].format(**world.names)} {filled(world, call[1])}"
    foreign = [run for name, run in world.names.items() if name.startswith("vault")]
    words = {word.decode() for word in re.findall(rb"[\w.]*vault[\w.]*", told)}
    return {each for each in (*words, *foreign) if each.encode() in told and each not in said}


def plain(world: World, call: tuple[str, Any], answer: Answer) -> tuple[int, str]:
    """An answer without the names that were in the call."""
    text = answer.body.decode()
    for name in sorted({*world.names.values(), NEVER}, key=len, reverse=True):
        text = text.replace(name, "RUN")
    named = re.sub(r"(vault|nobody)_(job|code|handler|queue)", "NAME", text)
    return answer.status, re.sub(r'"as_of":"[^"]+"', "AS_OF", named)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("role", list(TokenRole))
async def test_a_limited_token_reaches_its_own_and_nothing_else(world, role, limit):
    limited = Caller(world.admin.api, await new_token(world.scheduler, role, **LIMITS[limit]))
    before = await world.theirs()
    for (method, path), calls in TABLE.items():
        granted = PERMISSIONS[method, path] in GRANTS[role]
        for call in calls.own:
            answer = await called(limited, world, method, call)
            place = (method, call, answer)
            if not granted or calls.kind == CONCERNS_ALL:
                assert answer.status == 403, place
            elif calls.queues and "handlers" in LIMITS[limit]:
                assert answer.status == 404, place
            else:
                assert answer.status in {200, 201, 204}, place
            assert not leaks(world, call, answer), place
        for foreign, absent in zip(calls.foreign, calls.absent, strict=True):
            there, nowhere = [await called(limited, world, method, call) for call in (foreign, absent)]
            assert plain(world, foreign, there) == plain(world, absent, nowhere), (method, foreign)
            assert there.status in {403, 404} or (calls.many and there.status == 200), (method, foreign, there)
            assert not leaks(world, foreign, there), (method, foreign, there)
    assert await world.theirs() == before


@pytest.mark.parametrize("role", list(TokenRole))
async def test_a_token_without_limits_reaches_everything_that_its_role_grants(world, role):
    caller = Caller(world.admin.api, await new_token(world.scheduler, role))
    for (method, path), calls in TABLE.items():
        granted = PERMISSIONS[method, path] in GRANTS[role]
        for call in (*calls.own, *calls.foreign):
            answer = await called(caller, world, method, call)
            if granted:
                assert answer.status not in {401, 403}, (method, call, answer)
            else:
                assert answer.status == 403, (method, call, answer)


# --- definitions: what is there, and what is to become of it


def definition(name, handler="our_handler", queue="ours", **fields):
    return {"name": name, "handler": handler, "queue": queue, "schedule": EVERY_DAY, **fields}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ["vault_job", "vault_code", "vault_handler"])
async def test_a_job_of_others_is_not_overwritten(world, limit, name):
    """Not even by a definition that is inside the limits, and nothing is told but that the name is taken."""
    limited = Caller(world.admin.api, await new_token(world.scheduler, "operator", **LIMITS[limit]))
    before = await world.theirs()
    for headers in ({}, {"if_match": "*"}, {"if_match": '"1"'}, {"if_none_match": "*"}):
        answer = await limited.post("/jobs", definition(name), **headers)
        assert answer.status == 409
        assert answer.problem["detail"] == f"the name {name!r} is taken: choose another one"
    assert await world.theirs() == before


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    "fields",
    [
        {"handler": "vault_handler"},
        {"handler": "vault_handler", "queue": "vault_queue"},
        {"handler": "vault_job"},
        {"handler": "nobody_handler"},
    ],
    ids=str,
)
async def test_a_job_becomes_nothing_outside_of_the_limits(world, limit, fields):
    limited = Caller(world.admin.api, await new_token(world.scheduler, "operator", **LIMITS[limit]))
    for name in ("our_job", "our_new"):
        answer = await limited.post("/jobs", definition(name, **fields))
        assert answer.status == 403, answer
        assert not leaks(world, ("", fields), answer)
    assert (await limited.get("/jobs/our_job")).json["revision"] == 1
    assert (await world.admin.get("/jobs/our_new")).status == 404


async def test_a_job_is_not_moved_out_of_the_limits(world):
    limited = Caller(world.admin.api, await new_token(world.scheduler, "operator", queues=["ours"]))
    answer = await limited.post("/jobs", definition("our_job", queue="vault_queue"))
    assert answer.status == 403
    assert (await limited.get("/jobs/our_job")).json["queue"] == "ours"
    assert (await limited.post("/jobs", definition("our_job", priority=5))).status == 200
    assert (await limited.post("/jobs", definition("our_new"))).status == 201


async def test_a_job_that_moves_away_while_it_is_changed_is_not_changed(world, monkeypatch):
    """The limit is checked on the very record that is replaced."""
    limited = Caller(world.admin.api, await new_token(world.scheduler, "operator", queues=["ours"]))
    store = (await world.scheduler.opened()).backend.store
    save, moved = store.save, []

    async def raced(changes, **options):
        if not moved:
            moved.append(True)
            away = definition("our_job", "vault_handler", "vault_queue")
            assert (await world.admin.post("/jobs", away)).status == 200
        return await save(changes, **options)

    for method, path, body in (
        ("POST", "/jobs/our_job/pause", None),
        ("POST", "/jobs", definition("our_job", priority=9)),
    ):
        moved.clear()
        assert (await world.admin.post("/jobs", definition("our_job"))).status == 200
        monkeypatch.setattr(store, "save", raced)
        answer = await limited(method, path, body)
        monkeypatch.setattr(store, "save", save)
        assert answer.status in {404, 409}
        assert not leaks(world, (path, body), answer)
        assert (await world.admin.get("/jobs/our_job")).json["status"] == "active"
        assert (await world.admin.get("/jobs/our_job")).json["priority"] == 0


# --- duplicates


async def test_the_key_of_a_run_of_others_tells_nothing_about_it(world):
    limited = Caller(world.admin.api, await new_token(world.scheduler, "submitter", queues=["ours"]))
    body = {"handler": "our_handler", "dedupe_key": "mixed"}
    answer = await limited.post("/runs", body)
    assert answer.status == 409
    assert world.names["mixed_run"].encode() not in answer.body
    many = await limited.post("/runs", [{"handler": "our_handler"}, body])
    assert many.status == 201
    first, second = many.json
    assert first["id"]
    assert (second["id"], second["deduplicated"]) == ("", True)
    assert world.names["mixed_run"].encode() not in many.body


# --- cursors


async def pages(caller: Caller, path: str) -> list[tuple[list, str | None]]:
    found, cursor = [], None
    while True:
        answer = await caller.get(f"{path}limit=1{'' if cursor is None else f'&cursor={cursor}'}")
        assert answer.status == 200, answer
        cursor = answer.headers.get("x-next-cursor")
        found.append((answer.json, cursor))
        if cursor is None:
            return found


@pytest.mark.parametrize("path", ["/jobs?", "/runs?", "/jobs?status=pending&"])
async def test_cursors_say_nothing_and_go_on_at_any_process(world, path):
    limited = Caller(world.admin.api, await new_token(world.scheduler, "viewer", queues=["ours"]))
    elsewhere = Caller(Api(world.scheduler), limited.token)
    found = await pages(limited, path)
    assert len(found) > len([page for page, _ in found if page]), "some pages have nothing for this token"
    for (_, cursor), (following, _) in itertools.pairwise(found):
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        assert b"vault" not in raw
        assert (await elsewhere.get(f"{path}limit=1&cursor={cursor}")).json == following


@pytest.mark.parametrize("path", ["/jobs?", "/runs?", "/jobs?status=pending&", "/jobs/our_job/runs?"])
async def test_a_cursor_that_was_not_given_out_is_refused(world, path):
    cursor = (await world.admin.get("/jobs?limit=1")).headers["x-next-cursor"]
    other = (await world.admin.get("/runs?limit=1")).headers["x-next-cursor"]
    mine = cursor if path == "/jobs?" else other
    forged = [
        "x",
        "a",
        "*",
        "=",
        "0" * 400,
        "AAAA",
        base64.urlsafe_b64encode(b"vault_job").decode(),
        mine[:-1],
        mine + "A",
        ("B" if mine[0] == "A" else "A") + mine[1:],
        mine[:-2] + ("AA" if mine[-2:] != "AA" else "BB"),
        other if path == "/jobs?" else cursor,
    ]
    for each in forged:
        answer = await world.admin.get(f"{path}cursor={each}")
        assert answer.status == 422, (each, answer)
        assert answer.problem["errors"][0]["pointer"] == "/cursor"
    assert (await world.admin.get(f"{path}cursor={mine}")).status == 200


async def test_processes_of_one_store_share_the_key_of_cursors_however_they_begin(scheduler):
    store = (await scheduler.opened()).backend.store
    apis = [Api(scheduler) for _ in range(5)]
    token = await new_token(scheduler, "admin")
    for name in ("a", "b"):
        body = {"name": name, "handler": "note", "schedule": EVERY_DAY}
        assert (await Caller(apis[0], token).post("/jobs", body)).status == 201
    cursors = {(await Caller(api, token).get("/jobs?limit=1")).headers["x-next-cursor"] for api in apis}
    assert len(cursors) == 1
    await store.put("secret", "cursors", b"another key of the same length, 3"[:32])
    fresh = Caller(Api(scheduler), token)
    assert (await fresh.get(f"/jobs?cursor={cursors.pop()}")).status == 422
    cursor = (await fresh.get("/jobs?limit=1")).headers["x-next-cursor"]
    apis[0].context.cursor_keys._read_at = -10.0  # it was a while ago
    assert (await Caller(apis[0], token).get(f"/jobs?cursor={cursor}")).status == 200


# --- events


def notices() -> list[bytes]:
    """Every kind of notice, with every combination of names that it might have."""
    names = {"job": "vault_job", "queue": "vault_queue", "handler": "vault_handler", "shard": "job:vault_custom"}
    chosen = [each for count in range(1, 5) for each in itertools.combinations(names.items(), count)]
    about = {"at": "2027-01-01T00:00:00.000000Z", "node": "node-1"}
    return [
        msgspec.json.encode({"kind": kind, **about, **dict(each)}) for kind in PublishedEventKind for each in chosen
    ]


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_limited_token_hears_nothing_of_others(world, limit):
    store = (await world.scheduler.opened()).backend.store
    limited = Caller(world.admin.api, await new_token(world.scheduler, "viewer", **LIMITS[limit]))
    after = await store.append(EVENTS, [])
    own = {"kind": "run.started", "at": "2027-01-01T00:00:00.000000Z", "node": "n", "job": "our_job", "queue": "ours"}
    await store.append(EVENTS, [*notices(), msgspec.json.encode({**own, "handler": "our_handler"})])
    async with Follower(limited, f"/events?after={after}") as follower:
        heard = await follower.next()
        while heard.kind != "run.started":
            assert "vault" not in str(heard.data), heard
            heard = await follower.next()
        assert heard.data["job"] == "our_job"


async def test_one_token_cannot_take_all_streams(world):
    api = Api(world.scheduler, ApiSettings(max_streams=3, max_streams_per_token=2))
    greedy, other = [Caller(api, await new_token(world.scheduler, "viewer")) for _ in range(2)]
    async with Follower(greedy), Follower(greedy):
        refused = await greedy.get("/events")
        assert (refused.status, refused.problem["type"]) == (429, "urn:duly:problem:too-many-streams")
        async with Follower(other):
            assert (await other.get("/events")).status == 503, "now all are taken"
    async with Follower(greedy) as follower:
        assert follower.status == 200


# --- nodes and queues


async def test_what_a_limited_token_sees_of_nodes_and_queues(world):
    [whole] = (await world.admin.get("/nodes")).json
    assert "vault_handler" in whole["handlers"]
    for limit, handlers in (("queue", []), ("handler", ["our_handler"]), ("both", ["our_handler"])):
        limited = Caller(world.admin.api, await new_token(world.scheduler, "viewer", **LIMITS[limit]))
        [node] = (await limited.get("/nodes")).json
        assert (node["id"], node["handlers"], node["labels"]) == (whole["id"], handlers, {})
        queues = [queue["name"] for queue in (await limited.get("/queues")).json]
        assert queues == (["ours"] if limit == "queue" else [])
