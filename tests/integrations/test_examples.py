"""The examples of integrations, run as they are."""

import importlib
import sys
from pathlib import Path

import pytest
from tests.integrations.asgi_support import served

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Load an example in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


async def test_the_example_with_fastapi_takes_an_order(example):
    module = example("fastapi_app")
    async with served(module.app) as client:
        run_id = (await client.post("/orders", params={"customer": "ada"})).json()["run"]
        run = await module.scheduler.get_run(run_id)
        assert run.job == "send_mail"
        assert (await client.get("/duly/health")).json()["status"] == "healthy"


def test_the_example_with_flask_takes_an_order_that_another_process_may_do(example):
    module = example("flask_app")
    client = module.app.test_client()
    try:
        answer = client.post("/orders/ada")
        assert answer.status_code == 202
        run_id = answer.json["run"]
        assert client.get(f"/runs/{run_id}").json == {"state": "queued"}
        for unknown in ("0660", "nonsense", "%00", "0" * 3000):
            answer = client.get(f"/runs/{unknown}")
            assert answer.status_code == 404
            assert "there is no run" in answer.json["error"]
        assert client.post("/orders/ada").status_code == 202
        waiting = module.scheduler.sync.runs("send_mail", "pending").runs
        assert [run.dedupe_key for run in waiting] == ["ask-ada"]
        module.scheduler.sync.start()
        result = module.scheduler.sync.submit("send_mail", {"to": "bob", "subject": "Hi"}).result(timeout=30)
        assert result == "flask_app sent 'Hi' to bob"
    finally:
        module.scheduler.sync.stop()


async def test_the_example_with_dishka_welcomes(example):
    module = example("dishka_app")
    async with module.scheduler:
        assert await (await module.welcome.submit(to="ada")).result(timeout=30) == "mailed ada"
    assert await module.welcome(to="eve", mailer=module.Mailer()) == "mailed eve"


async def test_the_example_of_an_executor_runs_in_its_pool(example):
    module = example("own_executor")
    async with module.scheduler:
        run = await module.resize.submit(picture="cat.png")
        assert await run.result(timeout=30) == "small-cat.png"
