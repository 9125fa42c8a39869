"""What a request may ask for is bounded: in size, in shape, in time; and the event loop is free meanwhile."""

import asyncio
import json
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.api_support import caller_for

from duly.api import json_input, previews, reading
from duly.api.json_input import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, read
from duly.api.previews import preview_of
from duly.api.problems import Problem
from duly.api.requests import PreviewBody, ScheduleBody
from duly.api.threads import RequestThreads
from duly.errors import ConfigurationError

NOW = datetime(2027, 1, 1, tzinfo=UTC)
SELDOM = "0 0 29 2 */7"  # the 29th of February if it is a Sunday: milliseconds per instant


# --- documents


def keys(count: int, last: str) -> bytes:
    return b"{" + b",".join(b'"%d":0' % number for number in range(count)) + f',"{last}":0}}'.encode()


@pytest.mark.parametrize(
    "body",
    [
        keys(99_990, "99989"),  # the last key is there twice
        keys(99_990, "0"),
        keys(111_844, "111843"),
        b"[" * 500_000,
        b"[[]," * 250_000,
        b'{"a":' * 200_000,
        b"[" + b"9" * 1_000_000 + b"]",
        b"[" + b"1." + b"9" * 1_000_000 + b"]",
        b"[" + b"1e" + b"9" * 1_000_000 + b"]",
        b'"' + b"\\" * 999_999,
        b'"\\' * 500_000,
        b'"\\ud800' * 100_000,
        b"[" + b'"\\ud800",' * 99_000 + b'""]',
    ],
    ids=lambda body: f"{body[:8]!r} {len(body)}",
)
def test_a_hostile_document_is_refused_in_time_that_grows_with_its_size(body):
    """Quadratic checks took minutes for some of these."""
    begun = time.process_time()
    with pytest.raises(Problem) as refused:
        read(body)
    assert refused.value.status == 400
    assert time.process_time() - begun < 5


def test_the_bounds_of_documents():
    assert len(read(keys(MAX_VALUES - 10, "x"))) == MAX_VALUES - 9
    with pytest.raises(Problem, match=f"more than {MAX_VALUES} values"):
        read(keys(MAX_VALUES + 10, "x"))
    assert read(b'["' + b",[{" * MAX_VALUES + b'"]') == [",[{" * MAX_VALUES]
    assert read(b"9" * MAX_DIGITS) == int("9" * MAX_DIGITS)
    assert read(b'"' + b"9" * 10 * MAX_DIGITS + b'"') == "9" * 10 * MAX_DIGITS
    for number in (b"9" * (MAX_DIGITS + 1), b"-" + b"9" * MAX_DIGITS + b"9", b"0." + b"1" * MAX_DIGITS):
        with pytest.raises(Problem, match=f"more than {MAX_DIGITS} digits"):
            read(number)
    read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(Problem, match="nested deeper"):
        read(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


_TEXT = st.text(st.sampled_from('ab:,"{}[]\\\n\x00é😀'), max_size=6)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def outcome(reading, body: bytes):
    """The value and the types in it, or the problem."""
    try:
        return repr(reading(body))
    except Problem as problem:
        return problem.status, problem.detail


@given(_VALUE, st.booleans(), st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=2))
def test_a_document_is_read_as_by_the_strict_reader(value, ascii_only, damages):
    """The fast reader must accept nothing that the strict one refuses, and read nothing differently."""
    body = bytearray(json.dumps(value, ensure_ascii=ascii_only).encode())
    for at, damage in damages:
        body[at % (len(body) + 1) : at % (len(body) + 1)] = damage
    assert outcome(read, bytes(body)) == outcome(json_input.read_strictly, bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a": "x:y", "b": {"c": 1, "c": ":"}}',
        b'[{"a": 1}, {"a": 1, "b": 2, "a": 3}]',
        b'{"a": ":", "a": 1}',
        b'{"\\":1": 0, "\\":1": 0}',
    ],
    ids=str,
)
def test_a_duplicate_key_is_refused_wherever_it_is(body):
    with pytest.raises(Problem, match="duplicate key"):
        read(body)


def test_colons_in_strings_are_not_keys():
    assert read(b'{"at": "10:30:00", "url": "http://a:1/"}') == {"at": "10:30:00", "url": "http://a:1/"}


async def test_a_problem_repeats_only_a_part_of_what_was_sent(caller):
    for body in ({"x" * 500_000: 1}, {"payload": 1, "handler": "h" * 500_000}, {"payload": 1, "delay": "9" * 60_000}):
        answer = await caller.post("/jobs", body)
        assert answer.status == 422
        assert len(answer.body) < 5000


async def test_a_large_body_is_read_beside_the_event_loop(caller, monkeypatch):
    threads = []

    def noted(body):
        threads.append(threading.current_thread())
        return read(body)

    monkeypatch.setattr(reading, "read", noted)
    assert (await caller.post("/jobs", {"payload": "small"})).status == 201
    assert (await caller.post("/jobs", {"payload": "x" * 100_000})).status == 201
    assert (await caller.post("/jobs", {"payload": ["\ud83d"] * 20_000})).status == 400
    small, large, odd = threads
    assert small is threading.current_thread()
    assert large is not small
    assert odd is not small


# --- previews


def body(schedule, **fields) -> PreviewBody:
    return PreviewBody(schedule=schedule, **fields)


async def test_a_preview_is_computed_beside_the_event_loop(caller, monkeypatch):
    threads = []

    def noted(*arguments):
        threads.append(threading.current_thread())
        return preview_of(*arguments)

    monkeypatch.setattr(previews, "preview_of", noted)
    answer = await caller.post("/preview", {"schedule": SELDOM, "count": 3})
    assert [each["due"][:10] for each in answer.json["next"]] == ["2032-02-29", "2060-02-29", "2088-02-29"]
    assert answer.json["complete"] is True
    assert threads[0] is not threading.current_thread()


def test_a_preview_ends_when_its_time_is_over_and_says_so():
    short = preview_of(body(SELDOM, count=1000), "UTC", NOW, longest=0.05)
    assert not short.complete
    assert 1 <= len(short.next) < 1000
    assert [each.due for each in short.next[:1]] == ["2032-02-29T00:00:00.000000Z"]
    whole = preview_of(body("every 15m", count=1000), "UTC", NOW, longest=60)
    assert (whole.complete, len(whole.next)) == (True, 1000)
    ended = preview_of(body(ScheduleBody(at=NOW + timedelta(days=1)), count=2), "UTC", NOW)
    assert (ended.complete, len(ended.next)) == (True, 1)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"schedule": "every 15m", "timezone": "Mars/X"}, 422),
        ({"schedule": {"at": "2027-01-01T00:00:00Z"}, "timezone": "../../etc/passwd"}, 422),
        ({"schedule": {"at": "2027-01-01T00:00:00Z"}, "timezone": "Europe"}, 422),
        ({"schedule": {"at": "2027-01-01T00:00:00Z"}, "timezone": ""}, 200),
        ({"schedule": "@daily", "timezone": "Mars/X"}, 422),
        ({"schedule": {"cron": "@daily", "timezone": "Mars/X"}}, 422),
        ({"schedule": "@daily", "after": "0001-01-01T00:00:00+14:00"}, 422),
        ({"schedule": "@daily", "after": "9999-12-31T23:59:59-12:00"}, 422),
        ({"schedule": "@daily", "after": "0001-01-01T00:00:00Z"}, 200),
        ({"schedule": "@daily", "after": "9999-12-31T23:59:59Z", "timezone": "Pacific/Kiritimati"}, 200),
        ({"schedule": "@daily", "after": "9999-12-29T00:00:00Z", "timezone": "Pacific/Kiritimati"}, 200),
        ({"schedule": {"at": "9999-12-31T23:59:59.999999Z"}, "timezone": "Pacific/Kiritimati"}, 200),
        ({"schedule": {"at": "0001-01-01T00:00:00+14:00"}}, 422),
        ({"schedule": {"every": 3155760000}, "after": "9990-01-01T00:00:00Z"}, 200),
        ({"schedule": {"every": 0}}, 422),
        ({"schedule": {"every": 1e-300}}, 422),
        ({"schedule": {"cron": "* * * * * *", "jitter": 3e9}}, 200),
    ],
    ids=str,
)
async def test_odd_zones_and_instants_are_answered(caller, fields, status):
    answer = await caller.post("/preview", fields)
    assert answer.status == status, answer
    if status == 422:
        assert answer.problem


async def test_what_waits_to_be_computed_is_bounded():
    computing = RequestThreads(most_waiting=3)
    gate = threading.Event()
    waiting = [asyncio.create_task(computing.run(gate.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Problem) as refused:
        await computing.run(lambda: None)
    assert (refused.value.status, refused.value.kind) == (503, "busy")
    gate.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await computing.run(lambda: 7) == 7
    computing.close()


# --- what is listed


async def test_upcoming_runs_are_bounded_and_computed_in_slices(memory):
    async with memory:
        for limit in (0, -1, 10_001):
            with pytest.raises(ConfigurationError, match="from 1 to 10000"):
                await memory.upcoming(limit)
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        found = await memory.upcoming(1000)
        task.cancel()
    assert len(found) == 1000
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert turns > 100, "others had their turn"


async def test_a_call_that_redrives_many_looks_at_a_bounded_number(memory, monkeypatch):
    monkeypatch.setattr("duly.scheduler.bulk_runs.SLICE", 2)
    monkeypatch.setattr("duly.scheduler.bulk_runs._MOST_SLICES", 3)
    caller = await caller_for(memory)
    for number in range(10):
        run = (await caller.post("/runs", {"payload": number, "delay": 60})).json["id"]
        assert (await caller.post(f"/runs/{run}/cancel")).status == 200
    first = (await caller.post("/runs/redrive", {"status": ["cancelled"]})).json
    assert first == {"redriven": 6, "left": 0, "next": first["next"]}
    rest = await caller.post("/runs/redrive", {"status": ["cancelled"], "cursor": first["next"]})
    assert rest.json == {"redriven": 4, "left": 0}
