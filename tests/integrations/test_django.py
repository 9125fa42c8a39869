"""Duly in a real Django project, the one under examples: its commands, its transactions, its ASGI application."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duly import ConfigurationError
from duly.integrations.django.apps import configuration

PROJECT = Path(__file__).parents[2] / "examples" / "django_shop"
TAKE = """
import django; django.setup()
from django.test import Client
from django.db import transaction
from orders.jobs import confirm, scheduler
from orders.models import Order
from duly.integrations.django import on_commit
"""


class Project:
    """The project with data of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._env = {**os.environ, "SHOP_DATA": str(data), "DJANGO_SETTINGS_MODULE": "shop.settings"}
        self._env["PYTHONPATH"] = str(PROJECT.parents[1])
        self._env.pop("DULY_URL", None)
        self.manage("migrate", "--verbosity", "0")

    def manage(self, *arguments: str) -> str:
        return self._output([sys.executable, "manage.py", *arguments])

    def python(self, code: str) -> str:
        return self._output([sys.executable, "-W", "error", "-c", TAKE + code])

    def start(self, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.Popen(command, cwd=PROJECT, env=self._env, stderr=subprocess.PIPE, text=True)

    def _output(self, command) -> str:
        done = subprocess.run(
            command, cwd=PROJECT, env=self._env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("shop"))


def test_an_order_is_submitted_when_it_is_committed_and_done_by_manage_py_duly_run(project):
    node = project.start("duly", "run", "--concurrency", "2")
    try:
        said = project.python("""
from django.conf import settings
settings.ALLOWED_HOSTS = ["testserver"]
order = Client().get("/orders/ada").json()["order"]
[run] = scheduler.sync.runs("confirm", limit=1).runs
assert scheduler.sync.call(lambda: scheduler._result(run.id, 30), "result") == "confirmed ada"
assert Order.objects.get(pk=order).confirmed
print(scheduler.sync.submit("count").result(timeout=30) == Order.objects.count())
""")
        assert said.split() == ["True"]
    finally:
        node.send_signal(signal.SIGTERM)
        _, log = node.communicate(timeout=40)
    assert node.returncode == 0, log
    assert "stopped" in log


def test_a_rolled_back_transaction_submits_nothing_and_a_bad_payload_is_refused_inside_it(project):
    project.python("""
from duly import PayloadError
before = len(scheduler.sync.runs("confirm").runs)
try:
    with transaction.atomic():
        on_commit(confirm).submit(order_id=1)
        raise KeyError
except KeyError:
    pass
try:
    with transaction.atomic():
        on_commit(confirm.options(delay=60)).submit(order="one")
except PayloadError as error:
    assert "order_id" in str(error), error
else:
    raise AssertionError
assert len(scheduler.sync.runs("confirm").runs) == before
with transaction.atomic():
    on_commit(confirm.options(delay=3600, dedupe_key="later")).submit(order_id=1)
    assert len(scheduler.sync.runs("confirm").runs) == before
[later] = [run for run in scheduler.sync.runs("confirm").runs if run.dedupe_key == "later"]
scheduler.sync.cancel(later.id)
""")


def test_the_commands_are_those_of_duly_on_the_projects_store(project):
    assert "--concurrency" in project.manage("duly", "run", "--help")
    said = project.python("""
import contextlib, io, json, os
from django.core.management import call_command
run = scheduler.sync.submit("count")

def told(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        call_command("duly", *arguments)
    return output.getvalue()

assert run.id in [each["id"] for each in json.loads(told("runs", "--json"))]
assert "worker" in told() and "worker" in told("--", "--help")
assert "DULY_URL" not in os.environ
run.cancel()
try:
    told("show", "no-such-thing")
except SystemExit as ended:
    print(ended.code)
""")
    assert said.split() == ["1"]


def test_jobs_are_found_and_settings_are_obeyed(project):
    said = project.python("""
print(sorted(scheduler._registry.handlers()), scheduler.config.max_concurrent, scheduler._binding.url)
""")
    assert said.strip() == f"['confirm', 'count', 'forget_unconfirmed'] 4 sqlite:///{project.data}/duly.db"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("redis://:secret@host", "must be a dict"),
        ({"ADDRESS": "redis://"}, "unknown key 'ADDRESS'"),
        ({"CONFIG": {"slots": 3}}, "slots"),
        ({"CONFIG": {"max_concurrent": 0}}, "max_concurrent"),
    ],
)
def test_a_wrong_setting_is_named(setting, words):
    with pytest.raises(ConfigurationError, match=words) as raised:
        configuration(setting)
    assert "secret" not in str(raised.value)


def test_under_an_asgi_server_the_project_runs_its_own_node(project):
    said = project.python("""
import asyncio
from shop.asgi import application, scheduler
from tests.integrations.asgi_support import Host, called
from django.conf import settings
settings.ALLOWED_HOSTS = ["localhost"]

async def main():
    host = Host(application)
    print((await host.startup())["type"], scheduler.is_running)
    async with called(application) as client:
        order = (await client.get("/orders/eve")).json()["order"]
    [run] = (await scheduler.runs("confirm", limit=1)).runs
    await scheduler._result(run.id, 30)
    print((await Order.objects.aget(pk=order)).confirmed)
    await host.shutdown()

asyncio.run(main())
""")
    assert said.split() == ["lifespan.startup.complete", "True", "True"]


def test_a_handler_does_not_keep_a_connection_that_broke(project):
    project.python("""
from django.db import connections
from duly.integrations.django.apps import with_fresh_connections

def breaks():
    connection = connections["default"]
    connection.ensure_connection()
    connection.errors_occurred = True
    connection.is_usable = lambda: False
    return connection

connection = with_fresh_connections(breaks)()
assert connection.connection is None
""")
