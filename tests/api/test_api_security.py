"""Who may do what: tokens, roles, limits; what is never let in, and what is never written down."""

import io
import itertools
import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.api.api_support import Caller, caller_for, new_token, shop
from tests.api.events_support import Follower

from duly import Scheduler
from duly.api import Api, ApiSettings
from duly.api import tokens as access
from duly.api.permissions import GRANTS, Permission, TokenRole
from duly.api.routes import ROUTES
from duly.errors import ConfigurationError
from duly.observe import configure_logging
from duly.testing.clock import ManualClock

BODIES = {
    "/jobs": {"payload": 1},
    "/runs": {"payload": 1},
    "/runs/redrive": {"job": "note"},
    "/runs/cancel": {"job": "note"},
    "/runs/count": {"job": "note"},
    "/runs/purge": {"status": ["failed"], "before": "2020-01-01T00:00:00Z"},
    "/jobs/pause": {"names": ["invoice"]},
    "/jobs/resume": {"names": ["invoice"]},
    "/jobs/{id}/backfill": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"},
    "/preview": {"schedule": "every 15m"},
    "/config/{name}": {"value": 3},
}


def matrix():
    for route in ROUTES:
        for role in (None, *TokenRole):
            yield pytest.param(route, role, id=f"{route.method} {route.path} {role}")


@pytest.mark.parametrize(("route", "role"), list(matrix()))
async def test_every_route_lets_in_those_whose_role_grants_its_permission_and_nobody_else(memory, route, role):
    token = None if role is None else await new_token(memory, role)
    caller = Caller(Api(memory), token)
    target = route.path.replace("{id}", "invoice").replace("{name}", "mail")
    answer = await caller(route.method, target, BODIES.get(route.path))
    if route.permission is Permission.PUBLIC:
        assert answer.status == 200
    elif role is None:
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "duly token create" in answer.problem["detail"]
    elif route.permission in GRANTS[role]:
        assert answer.status in {200, 201, 204, 404, 409}
    else:
        assert answer.status == 403
        assert "role" in answer.problem["detail"]


def test_each_role_may_do_all_that_the_one_before_may():
    roles = list(TokenRole)
    for less, more in itertools.pairwise(roles):
        assert GRANTS[less] < GRANTS[more]
    assert GRANTS[TokenRole.ADMIN] == frozenset(Permission)


async def test_defining_a_job_needs_an_operator(memory):
    body = {"name": "x", "handler": "note", "schedule": "@daily"}
    submitter = await caller_for(memory, "submitter")
    assert (await submitter.post("/jobs", body)).status == 403
    assert (await (await caller_for(memory, "operator")).post("/jobs", body)).status == 201


# --- tokens


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer duly_",
        "Bearer duly_0123456789ab_",
        "Bearer duly_0123456789ab_wrong",
        "Basic dXNlcjpwYXNz",
        "Bearer duly_../../x_y",
        "Bearer \u00e9",
        "duly_token",
    ],
)
async def test_what_is_no_token_lets_nobody_in(caller, header):
    stranger = caller.with_token(None)
    assert (await stranger.get("/jobs", authorization=header)).status == 401


async def test_a_wrong_secret_of_a_right_token_lets_nobody_in(caller):
    prefix, token_id, secret = caller.token.split("_", 2)
    for wrong in (secret[:-1], secret + "x", secret.swapcase(), "A" * len(secret), ""):
        assert (await caller.with_token(f"{prefix}_{token_id}_{wrong}").get("/jobs")).status == 401


async def test_a_token_has_256_bits_and_the_store_keeps_only_a_hash(scheduler):
    text = await new_token(scheduler, "viewer")
    secret = text.split("_", 2)[2]
    assert len(secret) == 43  # 32 bytes in base64
    store = (await scheduler.opened()).backend.store
    [item] = await store.items(access.KIND)
    assert secret.encode() not in item.value
    assert access.digest_of(secret).encode() in item.value


class StoreThatCounts:
    """A store whose reads are counted."""

    def __init__(self, store):
        self.store = store
        self.reads = 0

    async def get(self, kind, key):
        self.reads += 1
        return await self.store.get(kind, key)


async def authenticating(scheduler):
    clock = ManualClock(datetime(2027, 1, 1, tzinfo=UTC))
    store = StoreThatCounts((await scheduler.opened()).backend.store)

    async def opened():
        return SimpleNamespace(store=store, clock=clock)

    return clock, store, access.Authenticator(opened, clock.monotonic)


async def test_a_verified_token_is_trusted_for_a_second_and_a_revocation_is_felt_then(memory):
    clock, store, authenticator = await authenticating(memory)
    token, text = await access.create(store.store, clock.now(), "ci", TokenRole.VIEWER)
    for _ in range(5):
        assert (await authenticator.principal(text.encode())).role is TokenRole.VIEWER
    assert store.reads == 1
    await access.revoke(store.store, token.id, clock.now())
    clock.set(clock.now() + timedelta(seconds=0.99))
    assert await authenticator.principal(text.encode()) is not None
    clock.set(clock.now() + timedelta(seconds=0.02))
    assert await authenticator.principal(text.encode()) is None
    assert store.reads == 2


async def test_an_expired_token_lets_nobody_in(memory):
    clock, store, authenticator = await authenticating(memory)
    expires = clock.now() + timedelta(hours=1)
    _, text = await access.create(store.store, clock.now(), "ci", TokenRole.VIEWER, expires_at=expires)
    assert await authenticator.principal(text.encode()) is not None
    clock.set(clock.now() + timedelta(seconds=3600))
    assert await authenticator.principal(text.encode()) is None
    with pytest.raises(ConfigurationError, match="past"):
        await access.create(store.store, clock.now(), "ci", TokenRole.VIEWER, expires_at=expires)


async def test_unknown_tokens_are_remembered_too_so_that_nobody_hammers_the_store(memory):
    _, store, authenticator = await authenticating(memory)
    for _ in range(5):
        assert await authenticator.principal(b"duly_0123456789ab_guess") is None
    assert store.reads == 1


# --- limits to queues and handlers


async def test_a_limited_token_submits_only_where_it_may(memory):
    caller = Caller(Api(memory), await new_token(memory, "submitter", queues=["mail"], handlers=["greet"]))
    ada = {"name": "Ada"}
    assert (await caller.post("/jobs", {"handler": "greet", "payload": ada})).status == 201
    for body in ({"handler": "greet", "payload": ada, "queue": "default"}, {"payload": 1}, {"handler": "explode"}):
        answer = await caller.post("/jobs", body)
        assert answer.status == 403, body
        assert (await caller.post("/runs", [body])).status == 403


async def test_what_a_limited_token_may_not_touch_does_not_exist_for_it(memory):
    admin = await caller_for(memory)
    async with memory:
        pass  # leaves the jobs of the code in the store
    theirs = (await admin.post("/runs", {"handler": "greet", "payload": {"name": "Ada"}})).json["id"]
    other = (await admin.post("/runs", {"payload": 1, "delay": 60})).json["id"]
    caller = Caller(Api(memory), await new_token(memory, "operator", queues=["mail"]))
    assert [run["id"] for run in (await caller.get("/runs")).json] == [theirs]
    assert [job["name"] for job in (await caller.get("/jobs")).json] == ["greet"]
    assert [queue["name"] for queue in (await caller.get("/queues")).json] == ["mail"]
    assert (await caller.get(f"/runs/{theirs}")).status == 200
    for method, target in [
        ("GET", f"/runs/{other}"),
        ("GET", f"/jobs/{other}"),
        ("DELETE", f"/jobs/{other}"),
        ("POST", f"/runs/{other}/cancel"),
        ("POST", f"/runs/{other}/redrive"),
        ("GET", "/jobs/note"),
        ("GET", "/jobs/note/runs"),
        ("POST", "/jobs/note/pause"),
        ("POST", "/jobs/note/resume"),
        ("POST", "/jobs/note/trigger"),
        ("DELETE", "/jobs/note"),
        ("POST", "/queues/default/pause"),
        ("POST", "/queues/default/resume"),
    ]:
        assert (await caller(method, target)).status == 404, (method, target)
    define = {"name": "x", "handler": "note", "schedule": "@daily"}
    assert (await caller.post("/jobs", define)).status == 403
    assert (await admin.get(f"/runs/{other}")).json["status"] == "pending"


# --- without tokens


HERE = ("127.0.0.1", 50000)


async def test_without_authentication_only_programs_of_this_machine_are_answered(memory):
    caller = Caller(Api(memory, ApiSettings(authentication="none")), client=HERE)
    assert (await caller.get("/jobs")).status == 200
    for host in ("127.0.0.1:8080", "[::1]:8080", "LOCALHOST"):
        assert (await caller.get("/jobs", host=host)).status == 200
    assert (await caller.get("/jobs", host="evil.example:8080")).status == 403
    assert (await caller.get("/jobs", origin="http://evil.example")).status == 403
    assert (await caller.get("/jobs", sec_fetch_site="cross-site")).status == 403
    assert (await caller.get("/health")).json["authentication"] == "none"


@pytest.mark.parametrize(
    ("client", "status"),
    [
        (("127.0.0.1", 1), 200),
        (("127.8.9.1", 1), 200),
        (("::1", 1), 200),
        (("::ffff:127.0.0.1", 1), 200),
        (("192.168.1.7", 1), 403),
        (("0.0.0.0", 1), 403),
        (("::ffff:192.168.1.7", 1), 403),
        (("fe80::1%eth0", 1), 403),
        (("testclient", 1), 403),
        (("localhost", 1), 403),
        (("", 0), 403),
        ((), 403),
        (None, 403),
    ],
)
async def test_without_authentication_the_address_of_the_peer_decides_and_not_what_it_says(memory, client, status):
    caller = Caller(Api(memory, ApiSettings(authentication="none")), client=client)
    assert (await caller.get("/jobs", host="localhost")).status == status
    assert (await caller.post("/queues/mail/pause", host="127.0.0.1:8080")).status == status


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"])
async def test_without_authentication_nobody_comes_in_through_a_proxy_of_this_machine(memory, header):
    caller = Caller(Api(memory, ApiSettings(authentication="none")), client=HERE)
    answer = await caller.get("/jobs", **{header: "203.0.113.7"})
    assert answer.status == 403
    assert "proxy" in answer.problem["detail"]


async def test_a_header_that_decides_is_given_once(caller):
    for name in (b"authorization", b"host", b"content-type", b"if-match"):
        told = []

        async def send(message, told=told):
            told.append(message)

        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {caller.token}".encode())]
        headers += [(b"content-type", b"application/json"), (b"if-match", b"*"), (name, b"x")]
        scope = {"type": "http", "method": "POST", "path": "/jobs", "query_string": b"", "headers": headers}
        await caller.api(scope, None, send)
        assert told[0]["status"] == 400, name


def test_authentication_is_token_or_none():
    with pytest.raises(ConfigurationError, match="token or none"):
        ApiSettings(authentication="")


# --- what is let in


def deep(levels):
    return b'{"payload":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"payload": NaN}', "NaN"),
        (b'{"payload": Infinity}', "Infinity"),
        (b'{"payload": -Infinity}', "-Infinity"),
        (b'{"payload": 1e999}', "is too large"),
        (b'{"payload": 1, "payload": 2}', "duplicate key 'payload'"),
        (b'{"payload": {"a": 1, "a": 1}}', "duplicate key 'a'"),
        (b'{"payload": "\\ud800"}', "surrogate"),
        (b'{"payload": {"\\udfff": 1}}', "surrogate"),
        (b'{"payload": "a\\u0000b"}', "NUL"),
        (b'{"payload": "a\x00b"}', "control character"),
        (b'{"payload": "\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"payload": 1}', "Expecting value"),
        (b'{"payload": ' + b"9" * 5000 + b"}", "digits"),
        (deep(33), "nested deeper than 32"),
        (b"[" * 100_000, "nested deeper than 32"),
    ],
)
async def test_json_that_others_could_read_differently_is_refused(caller, memory, raw, words):
    answer = await caller.post("/jobs", raw=raw, content_type="application/json")
    assert answer.status == 400
    assert words in answer.problem["detail"]
    assert not (await memory.runs()).runs


@pytest.mark.parametrize(
    "raw",
    [
        deep(32),
        b'{"payload": "\\ud83d\\ude00"}',
        b'{"payload": "\\\\u0000"}',
        b'{"payload": "' + b"[" * 100 + b'"}',
        b'{"payload": "\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\""}',
    ],
)
async def test_json_that_only_looks_odd_is_let_in(caller, raw):
    assert (await caller.post("/jobs", raw=raw)).status == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_must_say_that_it_is_json(caller, kind):
    answer = await caller.post("/jobs", raw=b'{"payload": 1}', content_type=kind)
    assert answer.status == 415
    assert "application/json" in answer.problem["detail"]


@pytest.mark.parametrize(
    "target",
    [
        "/runs?limit=0",
        "/runs?limit=x",
        "/runs?limit=%2B5",
        "/runs?limit=null",
        "/runs?colour=red",
        "/runs?limit=1&limit=2",
        "/runs?due_until=null",
        "/runs?due_until=5",
        "/runs?status=null",
    ],
)
async def test_a_query_is_checked(caller, target):
    assert (await caller.get(target)).status == 422


@pytest.mark.parametrize("target", ["/runs?%ff=%fe", "/runs?job=%00", "/runs?&&="])
async def test_a_query_that_cannot_be_read_is_malformed(caller, target):
    assert (await caller.get(target)).status in {400, 422}


async def test_another_method_is_405_with_those_that_are_understood(caller):
    answer = await caller("PUT", "/jobs")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (await caller("HEAD", "/livez")).body == b""


async def test_a_body_is_read_up_to_its_limit_and_not_further(memory):
    caller = await caller_for(memory, max_body_bytes=2048)
    told, asked = [], 0

    async def receive():
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 1024, "more_body": True}

    async def send(message):
        told.append(message)

    headers = [(b"authorization", f"Bearer {caller.token}".encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/jobs", "query_string": b"", "headers": headers}
    await caller.api(scope, receive, send)
    assert told[0]["status"] == 413
    assert (b"connection", b"close") in told[0]["headers"]
    assert asked == 3


# --- what is never written down


async def test_a_planted_secret_is_in_no_log_no_error_no_metric_and_no_repr():
    secret = "s3cr3t-pl4nt3d"
    stream = io.StringIO()
    logger = logging.getLogger()
    before = (logger.handlers[:], logger.level)
    configure_logging("DEBUG", "JSON", stream)
    logger.addHandler(logging.StreamHandler(stream))
    logger.setLevel(logging.DEBUG)
    try:
        written = await everything_that_is_written(secret)
    finally:
        logger.handlers[:], logger.level = before
    assert secret not in written + stream.getvalue()


async def everything_that_is_written(secret: str) -> str:
    texts = []
    away = Scheduler(f"redis://user:{secret}@127.0.0.1:1/0")
    unreachable = Caller(Api(away), f"duly_0123456789ab_{secret}")
    for target in ("/jobs", "/health", "/metrics", "/readyz", "/events"):
        answer = await unreachable.get(target)
        assert answer.status == 503, answer
        texts.append(answer.body.decode())
    texts += [repr(unreachable.api), repr(away), repr(unreachable.api.context), repr(unreachable.api._authenticator)]
    async with shop("memory://", publish_events=True).client() as scheduler:
        await scheduler.submit("note", {"payload": secret})
        await (await scheduler.opened()).publisher.close()
        token = await new_token(scheduler, "admin")
        caller = Caller(Api(scheduler), token)
        for wrong in (f"duly_0123456789ab_{secret}", secret):
            texts.append((await caller.with_token(wrong).get("/jobs")).body.decode())
        for target in ("/metrics", "/metrics/prometheus", "/openapi.json", "/audit", "/nodes"):
            texts.append((await caller.get(target)).body.decode())
        async with Follower(caller, "/events?after=0") as follower:
            texts.append(str(await follower.next()))
        assert "run.submitted" in texts[-1]
        held = token.split("_", 2)[2]
        assert held not in "".join(texts)
        texts.append(repr(await access.tokens((await scheduler.opened()).backend.store)))
        assert held not in texts[-1]
    await away.close()
    return "".join(texts)
