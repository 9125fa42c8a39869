"""Jobs of files in a store: what an apply writes, who wins, and which nodes run the commands."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.conftest import emptied, eventually

from duly import Command, ConfigurationError, Every, Job, RunFailed, Scheduler, SchedulerConfig, State
from duly.job_files import read_text
from duly.model import JobStatus, Origin
from duly.model.event import JobFileApplied, JobFileOutdated
from duly.model.job import COMMAND_HANDLER

SERVING = SchedulerConfig(allow_commands="stored", tick_interval=0.5, shutdown_timeout=5)


def file_of(text, name="ops"):
    return read_text(f'name = "{name}"\n{text}')


def nothing() -> None: ...


def jobs(**commands):
    """A file of jobs that are due in a long time."""
    return file_of("".join(f'[jobs.{name}]\nevery = "1h"\ncommand = ["{word}"]\n' for name, word in commands.items()))


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path):
    """A fresh store of each kind that several can share."""
    on_file = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/duly.db" if on_file else emptied(request.getfixturevalue("redis_url"))


@asynccontextmanager
async def client(url):
    async with Scheduler(url).client() as scheduler:
        yield scheduler


@asynccontextmanager
async def pod(url, carried, config=SERVING):
    """A node that was started with a file, and what it told."""
    scheduler = Scheduler(url, config)
    scheduler.told = []
    scheduler.subscribe(scheduler.told.append, JobFileApplied, JobFileOutdated)
    await scheduler.carry(carried)
    async with scheduler:
        yield scheduler


async def apply(scheduler, carried):
    return await scheduler.apply(await scheduler.compare(carried))


async def names(scheduler):
    return [view.name for view in await scheduler.jobs()]


# --- applying


async def test_an_apply_makes_the_store_like_the_file(url):
    async with client(url) as scheduler:
        assert await apply(scheduler, jobs(a="one", b="one")) == []
        assert await apply(scheduler, jobs(b="two", c="one")) == []
        assert await names(scheduler) == ["b", "c"]
        view = await scheduler.get_job("b")
        assert (view.command, view.origin, view.job_file, view.revision) == ("two", Origin.FILE, "ops", 2)
        assert (await scheduler.compare(jobs(b="two", c="one"))).alterations == ()


async def test_an_apply_touches_no_jobs_of_others(url):
    async with client(url) as scheduler:
        await scheduler.register(Job(handler=nothing, name="code", schedule=Every(hours=1)))
        await apply(scheduler, file_of('[jobs.theirs]\ncommand = ["x"]\n', "shop"))
        await apply(scheduler, jobs(mine="x"))
        await apply(scheduler, jobs())
        assert await names(scheduler) == ["code", "theirs"]


async def test_with_a_clash_nothing_is_written(url):
    async with client(url) as scheduler:
        await scheduler.register(Job(handler=nothing, name="code", schedule=Every(hours=1)))
        await apply(scheduler, file_of('[jobs.theirs]\ncommand = ["x"]\n', "shop"))
        with pytest.raises(
            ConfigurationError, match=r"'code' of job file 'ops' is defined by code.*'theirs'.*job file 'shop'"
        ):
            await apply(scheduler, jobs(code="x", theirs="x", mine="x"))
        assert await names(scheduler) == ["code", "theirs"]


async def test_a_pause_and_history_survive_an_apply(url):
    async with client(url) as scheduler:
        await apply(scheduler, jobs(a="one"))
        run = await scheduler.trigger("a")
        await scheduler.pause("a", "for now")
        await apply(scheduler, jobs(a="two"))
        view = await scheduler.get_job("a")
        assert (view.status, view.note, view.command) == (JobStatus.PAUSED, "for now", "two")
        assert (await run.get()).job == "a"


async def test_a_job_that_leaves_the_file_is_gone_with_its_waiting_runs(url):
    async with client(url) as scheduler:
        await apply(scheduler, jobs(a="one"))
        run = await scheduler.trigger("a")
        await apply(scheduler, jobs())
        assert (await run.get()).state is State.CANCELLED
        assert await names(scheduler) == []
        await apply(scheduler, jobs(a="one"))
        assert await names(scheduler) == ["a"]


async def test_a_lost_race_is_reported_and_changes_nothing(url):
    async with client(url) as scheduler:
        await apply(scheduler, jobs(a="one", gone="one", b="one"))
        seen = await scheduler.compare(jobs(a="two", b="two", new="one"))
        await scheduler.pause("a")
        await scheduler.pause("gone")
        await apply(scheduler, file_of('[jobs.new]\ncommand = ["theirs"]\n', "shop"))
        assert sorted(await scheduler.apply(seen)) == ["a", "gone", "new"]
        views = {view.name: view for view in await scheduler.jobs()}
        assert (views["a"].command, views["b"].command, views["new"].job_file) == ("one", "two", "shop")


async def test_of_two_that_apply_at_once_one_is_told(url):
    async with client(url) as one, client(url) as two:
        first, second = await one.compare(jobs(a="1")), await two.compare(jobs(b="1"))
        lost = await asyncio.gather(one.apply(first), two.apply(second))
        assert sorted(lost) == [[], ["ops"]]
        assert await names(one) == (["b"] if lost[0] else ["a"])


async def test_a_difference_that_was_found_before_another_version_came_is_not_applied(url):
    async with client(url) as scheduler:
        await apply(scheduler, jobs(a="1"))
        for stale in (await scheduler.compare(jobs(b="1")), await scheduler.compare(jobs(a="1"))):
            await apply(scheduler, jobs(c=stale.job_file.jobs[0].name))
            assert await scheduler.apply(stale) == ["ops"]
        assert await names(scheduler) == ["c"]


async def test_what_an_older_version_writes_too_late_is_taken_back(url):
    async with client(url) as slow, client(url) as quick:
        files = (await slow._client()).job_files
        late = await slow.compare(jobs(a="1", late="1"))
        save = files._save

        async def overtaken(*arguments):
            await apply(quick, jobs(a="2"))
            return await save(*arguments)

        files._save = overtaken
        assert await slow.apply(late) == ["a", "ops"]
        assert await names(quick) == ["a"]
        assert (await quick.get_job("a")).command == "2"


async def test_what_the_store_cannot_promise_is_refused(redis_url):
    async with client(redis_url) as scheduler:
        with pytest.raises(ConfigurationError, match="job 'x' is at_most_once, but this store may forget"):
            await scheduler.compare(file_of('[jobs.x]\ncommand = ["x"]\ndelivery = "at_most_once"\n'))


# --- versions of a file


async def test_a_node_deploys_its_file_when_it_starts(url):
    async with pod(url, jobs(a="one", b="one")) as scheduler:
        assert await names(scheduler) == ["a", "b"]
        [applied] = scheduler.told
        assert applied.changes == ("added a: every hour: one", "added b: every hour: one")
    async with pod(url, jobs(a="one", b="one")) as again:
        assert again.told == []


async def test_the_newest_file_stands_and_an_older_one_does_not_come_back(url):
    old, new = jobs(a="old", gone="old"), jobs(a="new")
    async with pod(url, old) as first, pod(url, new) as second:
        assert await names(first) == ["a"]
        async with pod(url, old) as restarted:
            assert [type(event) for event in restarted.told] == [JobFileOutdated]
        assert (await second.get_job("a")).command == "new"
        assert await names(second) == ["a"]


async def test_an_operator_may_put_an_older_file_back(url):
    old, new = jobs(a="old"), jobs(a="new")
    async with pod(url, old), pod(url, new), client(url) as operator:
        assert await apply(operator, old) == []
        async with pod(url, new) as restarted:
            assert [type(event) for event in restarted.told] == [JobFileOutdated]
            assert (await restarted.get_job("a")).command == "old"


async def test_a_file_that_changes_under_a_running_node_is_new_even_if_it_stood_before(url):
    old, new = jobs(a="old"), jobs(a="new")
    async with pod(url, old) as scheduler:
        assert await scheduler.carry(new)
        assert (await scheduler.get_job("a")).command == "new"
        assert await scheduler.carry(old)
        assert (await scheduler.get_job("a")).command == "old"
        assert len(scheduler.told) == 3


async def test_a_reload_of_an_unchanged_file_does_not_bring_it_back(url):
    old, new = jobs(a="old"), jobs(a="new")
    async with pod(url, old) as scheduler, pod(url, new):
        assert not await scheduler.carry(old)
        assert (await scheduler.get_job("a")).command == "new"


async def test_a_reload_that_clashes_leaves_what_was_carried(url):
    async with pod(url, jobs(a="one")) as scheduler, client(url) as other:
        await apply(other, file_of('[jobs.theirs]\ncommand = ["x"]\n', "shop"))
        with pytest.raises(ConfigurationError, match="job file 'shop' already"):
            await scheduler.carry(jobs(theirs="x"))
        await other.remove("a")
        await scheduler._running.deploy()
        assert await names(scheduler) == ["a", "theirs"]


async def test_code_does_not_overwrite_what_a_file_defines(url):
    async with client(url) as scheduler:
        await apply(scheduler, jobs(a="one"))
        await scheduler.register(Job(handler=nothing, name="a", schedule=Every(hours=2)))
        assert (await scheduler.get_job("a")).command == "one"


# --- running


async def test_the_command_comes_from_the_definition_as_it_stands(url):
    async with pod(url, file_of('[jobs.say]\ncommand = ["echo", "old"]\n')) as scheduler, client(url) as operator:
        run = await scheduler.trigger("say")
        assert await run.result(timeout=30) == {"exit_code": 0, "stdout": "old\n", "stderr": ""}
        await apply(
            operator, file_of('[jobs.say]\ncommand = "echo $WORD"\nshell = true\nenvironment = {WORD = "new"}\n')
        )
        run = await operator.trigger("say")
        assert (await run.result(timeout=30))["stdout"] == "new\n"


async def test_variables_are_handed_on_by_name_only(url, monkeypatch):
    monkeypatch.setenv("HANDED_ON", "yes")
    monkeypatch.setenv("KEPT_BACK", "no")
    text = '[jobs.env]\ncommand = ["env"]\npass_environment = ["HANDED_ON", "NOT_SET"]\nenvironment = { A = "1" }\n'
    async with pod(url, file_of(text)) as scheduler:
        said = (await (await scheduler.trigger("env")).result(timeout=30))["stdout"].splitlines()
    assert {"HANDED_ON=yes", "A=1"} <= set(said)
    assert not [line for line in said if line.startswith(("KEPT_BACK", "NOT_SET"))]


async def test_a_failed_command_keeps_what_it_said(url):
    text = '[jobs.bad]\ncommand = "echo out; echo err >&2; exit 3"\nshell = true\nretry = 0\n'
    async with pod(url, file_of(text)) as scheduler:
        with pytest.raises(RunFailed, match="exit code 3") as caught:
            await (await scheduler.trigger("bad")).result(timeout=30)
    assert caught.value.traceback == "err\n"


async def test_retries_are_those_of_the_file(url, tmp_path):
    text = f"""
[jobs.flaky]
command = "echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
shell = true
retry = {{ max_retries = 5, strategy = "fixed", initial_interval = "10ms" }}
"""
    async with pod(url, file_of(text)) as scheduler:
        run = await scheduler.trigger("flaky")
        await run.result(timeout=30)
        assert (await run.get()).failures == 2


async def test_a_payload_cannot_choose_the_program(url):
    async with pod(url, file_of('[jobs.say]\ncommand = ["echo", "mine"]\n')) as scheduler:
        run = await scheduler.trigger("say", {"argv": ["echo", "theirs"], "command": "echo theirs"})
        assert (await run.result(timeout=30))["stdout"] == "mine\n"
        with pytest.raises(ConfigurationError, match="neither the name of a handler"):
            await scheduler.submit(COMMAND_HANDLER, {"argv": ["echo", "theirs"]})
        await scheduler.register(Job(handler=COMMAND_HANDLER, name="code"))
        with pytest.raises(RunFailed, match="has no command"):
            await (await scheduler.trigger("code", {"argv": ["echo", "theirs"]})).result(timeout=30)


async def test_a_run_of_a_removed_definition_runs_nothing(url):
    async with client(url) as operator:
        await apply(operator, jobs(a="one"))
        run = await operator.trigger("a")
        await apply(operator, jobs())
        await apply(operator, jobs(a="one"))
        await operator.redrive(run.id)
        async with pod(url, jobs(a="one")):
            with pytest.raises(RunFailed, match="was removed"):
                await run.result(timeout=30)


@pytest.mark.parametrize("allowed", [False, True])
async def test_nodes_that_were_not_started_for_it_run_no_stored_commands(url, allowed):
    """Commands in a program's own code are one thing, those of whoever may write to the store another."""
    async with client(url) as operator:
        await apply(operator, jobs(a="true"))
        run = await operator.trigger("a")
        program = Scheduler(url, SchedulerConfig(allow_commands=allowed, tick_interval=0.5))
        if allowed:
            program.add(Job(handler=Command(["true"]), name="own"))
        program.add(Job(handler=nothing, name="other"))
        async with program:
            assert COMMAND_HANDLER not in (await operator.nodes())[0].handlers
            if allowed:
                await (await program.trigger("own")).result(timeout=30)
            await eventually(lambda: _held(run), "it is held")
        explained = await operator.explain("a", (await run.get()).due)
        assert explained.verdict
        async with pod(url, jobs(a="true")):
            await run.result(timeout=30)


async def _held(run):
    return (await run.get()).hold == f"handler:{COMMAND_HANDLER}"


def test_other_values_of_allow_commands_are_refused():
    with pytest.raises(ConfigurationError, match="allow_commands='yes': expected one of False, True, stored"):
        SchedulerConfig(allow_commands="yes")
