"""Files of jobs on several real processes: once per instant, through kill -9, reloads and applies from elsewhere."""

import os
import signal
from pathlib import Path

import pytest
from tests.cluster.processes import Cluster

from duly.job_files import read_text
from duly.model.instant import stamp

HEAD = 'name = "ops"\nlock_ttl = "1s"\nleader_ttl = "1s"\nshutdown_timeout = "10s"\n'
BEAT = """
[jobs.beat]
every = "200ms"
overlap = "allow"
command = "echo beat $DULY_DUE $DULY_ATTEMPT >> {folder}/notes"
shell = true
"""


class Pods(Cluster):
    """Nodes that are `duly run jobs.toml`, each with its own file."""

    def write(self, name, text):
        path = self.folder / f"{name}.toml"
        path.write_text(HEAD + text.format(folder=self.folder))
        return path

    def start(self, name, text=BEAT):
        path = self.write(name, text)
        arguments = ["run", str(path), "--url", self.url, "--node-id", name, "--log-level", "DEBUG"]
        self.nodes[name] = self.spawn(name, ["-m", "duly", *arguments])

    async def run(self, **texts):
        """Start pods with these files, and wait until they are there."""
        for name, text in texts.items():
            self.start(name, text)
        await self.until(self._all_announced(list(texts)), f"{list(texts)} are up")

    def instants(self):
        return [due for _, due, _ in self.notes("beat")]

    async def beaten(self, times):
        """Wait for this many more beats."""
        already = len(self.instants())
        await self.until(lambda: len(self.instants()) >= already + times, f"{times} more beats")

    async def jobs(self):
        return {view.name: view.command for view in await self.client.jobs()}


@pytest.fixture(params=["sqlite", "redis"])
async def pods(request, tmp_path):
    on_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/duly.db" if on_file else request.getfixturevalue("durable_redis").url
    pods = Pods(tmp_path, url)
    async with pods.client.client():
        yield pods
        pods.close()


async def planned(pods):
    """What the store says about the instants of the beat: completed, by due."""
    page = await pods.client.runs("beat", "completed", limit=1000)
    return sorted(stamp(run.due) for run in page.runs)


async def test_every_instant_is_run_once_by_one_of_two(pods):
    await pods.run(a=BEAT, b=BEAT)
    await pods.beaten(15)
    assert [pods.stop(name) for name in ("a", "b")] == [0, 0]
    instants = pods.instants()
    assert len(set(instants)) == len(instants), pods.logs()
    assert len(await planned(pods)) == len(instants)


async def test_a_pod_that_is_killed_is_replaced_by_the_other_and_its_command_ends(pods):
    slow = (
        BEAT
        + """
[jobs.slow]
command = "echo $$ >> {folder}/slow-pids; until test -e {folder}/go; do sleep 0.05; done"
shell = true
"""
    )
    await pods.run(a=slow)
    run = await pods.client.trigger("slow")
    [first] = await pods.until(lambda: _numbers(pods, "slow-pids"), "it has begun")
    await pods.run(b=slow)
    pods.kill("a")
    await pods.until(lambda: not _alive(first), "the command of the killed pod is dead")
    _, second = await pods.until(lambda: len(found := _numbers(pods, "slow-pids")) == 2 and found, "it began again")
    assert _alive(second)
    await pods.beaten(5)
    (pods.folder / "go").touch()
    assert (await run.result(timeout=40))["exit_code"] == 0
    assert (await run.get()).losses == 1
    assert pods.stop("b") == 0
    first_attempts = [due for _, due, attempt in pods.notes("beat") if attempt == "1"]
    assert len(set(first_attempts)) == len(first_attempts), pods.logs()


async def test_a_command_is_killed_at_its_timeout_with_all_that_it_started(pods):
    text = """
[jobs.stuck]
command = "trap '' TERM; sleep 1000 & echo $! $$ > {folder}/stuck; wait; wait"
shell = true
timeout = "1s"
retry = 0
"""
    await pods.run(a=text)
    run = await pods.client.trigger("stuck")
    pids = await pods.until(lambda: _numbers(pods, "stuck"), "it has begun")
    await pods.until(lambda: not any(_alive(pid) for pid in pids), "all of it is dead")
    failed = await _ended(pods, run)
    assert failed.failure.type == "TimeoutError"


async def test_an_apply_from_elsewhere_holds_for_pods_that_run(pods):
    await pods.run(a=BEAT, b=BEAT)
    await pods.beaten(3)
    changed = read_text(HEAD + BEAT.format(folder=pods.folder).replace("echo beat", "echo tick"))
    assert await pods.client.apply(await pods.client.compare(changed)) == []
    await pods.until(lambda: len(pods.notes("tick")) > 3, "the new command is run")
    instants = [due for _, due, _ in pods.notes()]
    assert len(set(instants)) == len(instants), pods.logs()


async def test_a_rolling_deploy_ends_with_the_newest_file_and_older_pods_do_not_undo_it(pods):
    old, new = BEAT + '[jobs.old]\nevery = "1h"\ncommand = ["true"]\n', BEAT
    await pods.run(a=old, b=old)
    assert set(await pods.jobs()) == {"beat", "old"}
    pods.stop("a")
    await pods.run(a=new)
    assert set(await pods.jobs()) == {"beat"}
    pods.kill("b")
    await pods.run(c=old)
    assert "this file is not applied, a newer one has taken its place" in pods.logs()
    assert set(await pods.jobs()) == {"beat"}
    await pods.beaten(3)
    pods.write("c", new)
    pods.signal("c", signal.SIGHUP)
    await pods.until(lambda: "c.toml is reloaded" in pods.logs(), "the last pod has the new file")
    assert set(await pods.jobs()) == {"beat"}


def _numbers(pods, name):
    path = pods.folder / name
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def _alive(pid):
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (ProcessLookupError, FileNotFoundError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # one that nobody waited for yet is dead, too


async def _ended(pods, run):
    async def check():
        found = await run.get()
        return found if found.finished_at is not None else None

    return await pods.until(check, "the run has ended")
