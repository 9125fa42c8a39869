"""Documentation cannot rot: links lead somewhere, examples are run, and every public name is mentioned.

That the pages do what they say is tested in `tests/docs`.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import duly
from duly.model import SchedulerConfig
from duly.rules.schedules import Schedule
from duly.scheduler import Job, JobView

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", text):
        linked = page if not target else page.parent / target
        headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {_anchor(heading) for heading in headings}, f"{page.name}: {target}#{anchor}"


def _anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_files_that_the_architecture_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / "src" / "duly" / path).exists() and path != "decisions/"] == []


@pytest.mark.parametrize("name", [name for name in duly.__all__ if not name.startswith("_")])
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"(`|## ){name}\b", REFERENCE)


@pytest.mark.parametrize("struct", [SchedulerConfig, JobView, Job], ids=lambda struct: struct.__name__)
def test_every_field_is_in_the_reference(struct):
    missing = [field for field in struct.__struct_fields__ if f"`{field}" not in REFERENCE]
    assert not missing


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_is_mentioned_or_run(example):
    assert example.name in Path(__file__).read_text(encoding="utf-8") or any(
        example.name in page.read_text(encoding="utf-8") for page in PAGES
    )


def load(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


async def test_the_first_example_runs(monkeypatch, tmp_path):
    app = load("app", monkeypatch, tmp_path)
    async with app.scheduler:
        run = await app.send_mail.submit(to="ada@example.org", subject="Hi")
        assert await run.result(timeout=30) == "sent 'Hi' to ada@example.org"
        assert (await app.scheduler.get_job("nightly_report")).schedule == "at 02:30 every day, Europe/Berlin"


async def test_the_example_of_exactly_once_bills_once(monkeypatch, tmp_path):
    billing = load("billing", monkeypatch, tmp_path)
    async with billing.scheduler:
        run = await billing.scheduler.trigger("bill_customers")
        await run.result(timeout=30)
        assert (await run.get()).state is duly.State.COMPLETED
        mails = await billing.scheduler.runs("mail_invoice")
    assert len(mails.runs) == 3


async def test_the_example_of_placement_waits_for_a_node_with_the_label(monkeypatch, tmp_path):
    placement = load("placement", monkeypatch, tmp_path)
    with placement.scheduler.override("memory://"):
        async with placement.scheduler:
            run = await placement.train.submit(model="m")
            assert "no live node matches gpu=yes" in await placement.scheduler.waits_for(run.id)
    labelled = replace(placement.scheduler.config, labels={"gpu": "yes"})
    with placement.scheduler.override("memory://", config=labelled):
        async with placement.scheduler:
            assert await (await placement.train.submit(model="m")).result(timeout=30) == "trained m"


async def test_the_example_of_commands_runs(monkeypatch, tmp_path):
    commands = load("commands", monkeypatch, tmp_path)
    async with commands.scheduler:
        result = await (await commands.scheduler.trigger("disk-usage")).result(timeout=30)
    assert result["exit_code"] == 0
    assert "%" in result["stdout"]


def test_the_example_of_an_own_schedule_is_a_schedule(monkeypatch, tmp_path):
    tides = load("tides", monkeypatch, tmp_path)
    water = tides.HighWater()
    assert isinstance(water, Schedule)
    assert water.next_run(tides.FIRST_HIGH_WATER) == tides.FIRST_HIGH_WATER + tides.BETWEEN


def test_the_example_that_submits_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "submit.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2
