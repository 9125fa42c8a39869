"""Hostile values in every path, query and body field of every route, over a real connection, on every store.

Every answer is a success or a problem of the caller's; never a fault, never silence. A node runs beside the server: at
the end an innocent run must still be started and recorded. The fields come from the table of routes, so that a new one
is tried without anybody thinking of it.
"""

import json
from urllib.parse import quote, quote_from_bytes

import pytest
from msgspec import Struct
from tests.api.api_server import served
from tests.api.wire import Wire, ask, request
from tests.cli.cli_support import until

from duly.api.requests import RetryBody, ScheduleBody
from duly.api.routes import ROUTES

LONG = "a" * 3000

# As they stand in a URL.
IN_URLS = [
    "%00",
    "a%00b",
    "%ED%A0%80",  # half of a surrogate pair
    "%ff%fe",
    "%F0%9F%98%80",
    "%E2%80%AE",
    "%0d%0aX-Forged:%201",
    "%1b%5b2J",
    "..%2f..%2fetc%2fpasswd",
    "%2f",
    "%",
    "%zz",
    "%25",
    "+",
    "*",
    "'%20OR%201=1--",
    "%7b%7d",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "99999999999999999999999999",
    "%D9%A3",
    "NaN",
    LONG,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00",
    "9999-12-31T23:59:59.999999Z",
    "2027-01-01T00:00:00",
    "0" * 26,
    "zzzz-20270101T000000.000000",
]

# As they stand in a document.
IN_DOCUMENTS = [
    r'"\u0000"',
    r'"a\u0000b"',
    r'"\ud800"',
    r'"\udfff\ud800"',
    r'"\ud83d\ude00"',
    r'"\u202e\u001b[2J"',
    r'"\r\nX-Forged: 1"',
    '""',
    '" "',
    '"../../etc/passwd"',
    '"\'; DROP TABLE runs; --"',
    '"null"',
    json.dumps(LONG),
    json.dumps("a" * 200_000),
    "null",
    "true",
    "-1",
    "0",
    "0.1",
    "-0.0",
    "1e308",
    "1e-308",
    "9007199254740993",
    "18446744073709551616",
    "9" * 300,
    "[]",
    "{}",
    "[" * 20 + "]" * 20,
    '{"\\ud800": 1}',
    '"9999999999d"',
    '"1e5"',
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59-12:00"',
    '"2027-02-30T00:00:00Z"',
    '"2027-01-01T00:00:00"',
]

# What a body needs besides the field that is tried.
AROUND = {
    "/jobs": {"handler": '"note"', "name": '"tried"', "schedule": '"@daily"'},
    "/preview": {"schedule": '"@daily"'},
}


def structs(kind) -> list[type[Struct]]:
    return [kind] if isinstance(kind, type) and issubclass(kind, Struct) else []


def documents(route) -> list[str]:
    """A document for every field and every hostile value."""
    found = list(IN_DOCUMENTS)
    for kind in route.body.kinds:
        for struct in structs(kind):
            env = AROUND.get(route.path, {}) if "schedule" in struct.__struct_fields__ else {}
            for name in struct.__struct_fields__:
                found += [_document({**env, name: value}) for value in IN_DOCUMENTS]
    nested = {"schedule": ScheduleBody, "retry": RetryBody}
    for name, struct in nested.items():
        if any(name in kind.__struct_fields__ for each in route.body.kinds for kind in structs(each)):
            env = AROUND.get(route.path, {})
            for inner in struct.__struct_fields__:
                found += [_document({**env, name: _document({inner: value})}) for value in IN_DOCUMENTS]
    return found


def _document(fields: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def targets(route) -> list[str]:
    """A target for every variable part and every field of the query, with every hostile value."""
    plain = route.path.replace("{id}", "tried").replace("{name}", "mail")
    found = [plain]
    if route.variable is not None:
        found += [route.path.replace("{" + route.variable + "}", value) for value in IN_URLS]
    if route.query is not None:
        found += [f"{plain}?{name}={value}" for name in route.query.__struct_fields__ for value in IN_URLS]
        found += [f"{plain}?{value}" for value in IN_URLS] + [f"{plain}?{value}=1" for value in IN_URLS]
    return found


def calls(route) -> list[tuple[str, bytes, tuple[str, ...]]]:
    found = [(target, b"", ()) for target in targets(route)]
    if route.body is not None:
        plain = targets(route)[0]
        found += [(plain, document.encode(), ()) for document in documents(route)]
    for header in ("If-Match", "Last-Event-ID", "traceparent", "Accept", "Content-Type"):
        for value in ("\x80", "*" * 100, '"9999999999999999999"', "W/", ",", "-1", "\t", "a;b=c;;;"):
            found.append((targets(route)[0], b"{}" if route.body else b"", (f"{header}: {value}",)))
    return found


@pytest.fixture(scope="module", params=["memory", "sqlite", "redis", "postgres"])
def service(request, tmp_path_factory):
    """A server on each kind of store, with a namespace of its own."""
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/duly.db"
        case kind:
            url = request.getfixturevalue(f"{kind}_url")
    with served(url, node=True, namespace="hostile") as found:
        yield found


# A stream has no end; that it refuses what is wrong with its query is in test_api_events.py.
TRIED = [route for route in ROUTES if route.path != "/events"]


@pytest.mark.parametrize("route", TRIED, ids="{0.method} {0.path}".format)
def test_hostile_values_are_refused_or_harmless(service, route):
    port, token = service
    wire = Wire(port)
    for target, body, headers in calls(route):
        wire.send(request(route.method, target, token, body, *headers))
        answer = wire.receive()
        place = (route.method, target[:200], body[:200], headers, answer)
        assert answer is not None, place
        assert answer.status < 500, place
        if answer.status >= 400:
            assert answer.problem["type"].startswith("urn:duly:problem:"), place
            assert len(answer.body) < 5000, place
        if answer.headers.get("connection") == "close":
            wire.sock.close()
            wire = Wire(port)
    wire.sock.close()
    for target in ("/jobs?limit=1000", "/runs?limit=1000", "/queues", "/nodes", "/metrics", "/audit?limit=1000"):
        assert ask(port, "GET", target, token).status == 200, target
    innocent = ask(port, "POST", "/runs", token, b'{"payload": "innocent", "priority": 9}')
    assert innocent.status == 201
    until(lambda: ask(port, "GET", f"/runs/{innocent.json['id']}", token).json["status"] == "completed")


def test_the_hostile_values_are_what_they_are_meant_to_be():
    assert quote("\x00") in IN_URLS
    assert quote_from_bytes("\ud800".encode("utf-8", "surrogatepass")) in IN_URLS
    assert len(TRIED) == len(ROUTES) - 1
    for value in IN_DOCUMENTS:
        json.loads(value)
