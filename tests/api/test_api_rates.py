"""Rate limits: in the store, per token and per handler, and off unless set."""

import pytest
from tests.api.api_support import Caller, caller_for, new_token

from duly.api import Api, ApiSettings
from duly.api.rates import Limits
from duly.errors import ConfigurationError
from duly.rules.rate_limits import Rate, parse, parse_each

SLOWLY = parse("1/h:2")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10/s", Rate(10, 10)), ("600/m", Rate(10, 600)), ("36/h", Rate(0.01, 36)), ("10/s:25", Rate(10, 25))],
)
def test_rates(text, rate):
    assert parse(text) == rate


@pytest.mark.parametrize("text", ["", "10", "10/d", "0/s", "-1/s", "1.5/s", "10/s:0", "ten/s"])
def test_what_is_no_rate(text):
    with pytest.raises(ConfigurationError, match="invalid rate"):
        parse(text)


def test_rates_of_handlers():
    assert parse_each("greet=10/s, note=1/m") == {"greet": Rate(10, 10), "note": Rate(1 / 60, 1)}
    with pytest.raises(ConfigurationError, match="expected handler=rate"):
        parse_each("greet")


async def test_a_token_of_its_own_rate_is_stopped_and_others_are_not(admin, scheduler):
    slow = Caller(admin.api, await new_token(scheduler, "viewer", rate=SLOWLY))
    assert [(await slow.get("/jobs")).status for _ in range(3)] == [200, 200, 429]
    answer = await slow.get("/jobs")
    assert int(answer.headers["retry-after"]) >= 1
    assert "try again in" in answer.problem["detail"]
    assert (await admin.get("/jobs")).status == 200
    assert (await slow.get("/livez")).status == 200


async def test_a_rate_of_all_tokens_counts_each_by_itself_and_across_instances(scheduler):
    settings = ApiSettings(limits=Limits(token=SLOWLY))
    one, other = Api(scheduler, settings), Api(scheduler, settings)
    token = await new_token(scheduler, "viewer")
    statuses = [(await Caller(api, token).get("/jobs")).status for api in (one, other, one, other)]
    assert statuses == [200, 200, 429, 429]
    assert (await Caller(one, await new_token(scheduler, "viewer")).get("/jobs")).status == 200


async def test_a_handler_that_is_limited_takes_no_more_and_nothing_is_stored(scheduler):
    caller = await caller_for(scheduler, limits=Limits(handlers={"note": SLOWLY}))
    assert [(await caller.post("/jobs", {"payload": n})).status for n in range(3)] == [201, 201, 429]
    assert (await caller.post("/jobs", {"handler": "greet", "payload": {"name": "Ada"}})).status == 201
    assert len((await scheduler.runs("note")).runs) == 2
    too_many = await caller.post("/runs", [{"payload": n} for n in range(5)])
    assert too_many.status == 429
    assert "smaller arrays" in too_many.problem["detail"]
    assert len((await scheduler.runs("note")).runs) == 2


async def test_a_trigger_counts_as_a_submission_to_its_handler(scheduler):
    caller = await caller_for(scheduler, limits=Limits(handlers={"note": SLOWLY}))
    body = {"name": "report", "handler": "note", "schedule": "@daily"}
    assert (await caller.post("/jobs", body)).status == 201
    assert [(await caller.post("/jobs/report/trigger")).status for _ in range(3)] == [201, 201, 429]
    assert (await caller.post("/jobs", {"payload": 1})).status == 429, "the bucket is the handler's, not the job's"
    assert len((await scheduler.runs("report")).runs) == 2
    stale = await caller.post("/jobs/report/trigger", if_match='"9"')
    assert stale.status == 409, "what is refused anyway is not counted"


async def test_a_handler_is_counted_under_whichever_name_it_is_submitted_to(scheduler):
    caller = await caller_for(scheduler, limits=Limits(handlers={"note": SLOWLY}))
    for name in ("report", "other"):
        assert (await caller.post("/jobs", {"name": name, "handler": "note", "schedule": "@daily"})).status == 201
    submitted = [{"handler": "report"}, {"handler": "other"}, {"handler": "note"}, {}]
    assert [(await caller.post("/runs", body)).status for body in submitted] == [201, 201, 429, 429]


async def test_a_redrive_counts_as_a_submission_to_its_handler(scheduler):
    free, caller = await caller_for(scheduler), await caller_for(scheduler, limits=Limits(handlers={"note": SLOWLY}))
    runs = [(await free.post("/runs", {"payload": number, "delay": 60})).json["id"] for number in range(4)]
    for run in runs:
        assert (await free.post(f"/runs/{run}/cancel")).status == 200
    too_many = await caller.post("/runs/redrive", {"status": ["cancelled"]})
    assert too_many.status == 429
    assert (await caller.post(f"/runs/{runs[0]}/redrive")).status == 200
    assert (await caller.post("/runs/redrive", {"status": ["cancelled"], "limit": 1})).json["redriven"] == 1
    assert (await caller.post(f"/runs/{runs[0]}/redrive")).status == 429
