"""Settings of the cluster over HTTP."""

from tests.api.api_support import Caller, caller_for, new_token
from tests.conftest import eventually

from duly.api import Api


async def test_settings_are_listed_set_compared_and_taken_back(admin, scheduler):
    listed = {each["name"]: each for each in (await admin.get("/config")).json}
    assert (listed["max_losses"]["value"], listed["max_losses"]["origin"]) == (3, "default")
    answer = await admin.get("/config/max_losses")
    assert answer.headers["etag"] == '"0"'
    answer = await admin("PUT", "/config/max_losses", {"value": 5}, if_match='"0"')
    assert (answer.status, answer.json["value"], answer.json["origin"], answer.headers["etag"]) == (
        200,
        5,
        "cluster",
        '"1"',
    )
    assert (await admin("PUT", "/config/max_losses", {"value": 6}, if_match='"0"')).status == 409
    assert (await admin("PUT", "/config/misfire_grace", {"value": "2h"})).json["value"] == 7200
    assert (await admin("DELETE", "/config/max_losses")).status == 204
    assert (await admin.get("/config/max_losses")).json["origin"] == "default"
    deeds = (await admin.get("/audit")).json
    assert [(deed["action"], deed["target"]) for deed in deeds if deed["target"].startswith("setting")] == [
        ("set", "setting max_losses"),
        ("set", "setting misfire_grace"),
        ("unset", "setting max_losses"),
    ]


async def test_what_cannot_be_set_is_a_problem_of_the_caller(memory):
    admin = await caller_for(memory)
    answer = await admin("PUT", "/config/max_losses", {"value": "many"})
    assert (answer.status, answer.problem["detail"]) == (422, "max_losses='many': expected a whole number")
    answer = await admin("PUT", "/config/lock_ttl", {"value": 3})
    assert answer.status == 404
    assert "cannot change while nodes run" in answer.problem["detail"]
    assert "did you mean max_losses?" in (await admin("PUT", "/config/max_loses", {"value": 3})).problem["detail"]
    assert (await admin("DELETE", "/config/nothing")).status == 404
    assert (await admin("PUT", "/config/max_losses", {"value": 3}, if_match="*")).status == 400


async def test_rate_limits_of_the_cluster_hold_in_a_server_that_runs(memory):
    admin = await caller_for(memory)
    viewer = Caller(admin.api, await new_token(memory, "viewer"))
    assert (await viewer.get("/jobs")).status == 200
    assert (await admin("PUT", "/config/token_rate", {"value": "1/h:3"})).status == 200

    async def is_limited():
        return (await viewer.get("/jobs")).status == 429

    await eventually(is_limited)
    slow = Caller(Api(memory), await new_token(memory, "submitter"))
    await memory.settings.set("token_rate", "none")
    await memory.settings.set("handler_rates", "note=1/h:1")

    async def note_is_limited():
        return (await slow.post("/runs", {"handler": "note", "payload": {}})).status == 429

    await eventually(note_is_limited)
    await memory.settings.unset("handler_rates")

    async def is_free():
        return (await slow.post("/runs", {"handler": "note", "payload": {}})).status in {200, 201}

    await eventually(is_free)
