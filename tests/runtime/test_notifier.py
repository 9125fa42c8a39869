"""The notifier: one of many nodes reports each event, nothing is lost with a node, and runs are never affected."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.processes import Processes
from tests.runtime.notify_servers import Receiver
from tests.sim.company import played

from duly import DeliveryRejected, Every, Job, Scheduler, SchedulerConfig, State
from duly.model.event import NotificationFailed, NotificationsLost, ServiceFailed
from duly.model.notification import CHOOSABLE_KINDS, NOTIFY
from duly.runtime.notify.notifier import Notifier, read_state

SCRIPT = Path(__file__).parent / "notify_script.py"


class Inbox:
    """A target that keeps what it gets, after raising the given errors."""

    def __init__(self, name="ops", on=CHOOSABLE_KINDS, errors=()):
        self.name = name
        self.on = on
        self.errors = list(errors)
        self.messages = []
        self.delay = 0.0

    async def send(self, notification):
        await asyncio.sleep(self.delay)
        if self.errors:
            raise self.errors.pop(0)
        self.messages.append(notification)

    def kinds(self):
        return [message.kind.value for message in self.messages]


class Switch:
    """Whether a job fails."""

    def __init__(self):
        self.broken = False


def program(switch, *, every=10, takes=0, **options):
    scheduler = Scheduler("memory://")

    async def report() -> None:
        await asyncio.sleep(takes)
        if switch.broken:
            raise ValueError("boom")

    scheduler.add(Job(name="report", handler=report, schedule=Every(seconds=every), retry=None, **options))
    return scheduler


async def state_of(company):
    return read_state(await company.office.backend.store.get(*NOTIFY))


# --- in virtual time


@played
async def test_failures_become_one_message_and_the_first_success_another(company):
    switch, inbox = Switch(), Inbox()
    await company.start("a", program(switch), notify=(inbox,), notify_repeat=600)
    await asyncio.sleep(60)
    assert inbox.messages == []
    switch.broken = True
    await asyncio.sleep(300)
    [failure] = inbox.messages
    assert (failure.kind, failure.job) == ("failure", "report")
    assert 1 <= failure.count <= 3
    switch.broken = False
    await asyncio.sleep(60)
    assert inbox.kinds() == ["failure", "recovery"]
    await asyncio.sleep(600)
    # What failed while the job was muted is told when the time is over.
    assert inbox.kinds() == ["failure", "recovery", "failure"]
    assert sum(message.count for message in inbox.messages if message.kind == "failure") == len(
        await company.runs("report", State.FAILED)
    )


@played
async def test_one_of_many_nodes_sends_each_message(company):
    switch, inboxes = Switch(), [Inbox() for _ in range(3)]
    members = [await company.start(f"n{n}", program(switch), notify=(inboxes[n],)) for n in range(3)]
    await asyncio.sleep(30)
    switch.broken = True
    await asyncio.sleep(60)
    assert sum(len(inbox.messages) for inbox in inboxes) == 1
    sender = next(n for n, inbox in enumerate(inboxes) if inbox.messages)
    members[sender].node.kill()
    switch.broken = False
    await asyncio.sleep(120)
    assert sorted(kind for inbox in inboxes for kind in inbox.kinds()) == ["failure", "recovery"]
    ids = Counter(message.id for inbox in inboxes for message in inbox.messages)
    assert max(ids.values()) == 1
    assert not any(member.events(ServiceFailed) for member in members)


@played
async def test_a_message_that_was_not_recorded_is_sent_again_under_the_same_id(company):
    switch, first, second = Switch(), Inbox(), Inbox()
    first.delay = second.delay = 0.01
    dying = await company.start("a", program(switch), notify=(first,))
    await company.start("b", program(switch), notify=(second,))
    send = first.send

    async def send_and_die(notification):
        await send(notification)
        dying.node.kill()
        await asyncio.sleep(3600)

    first.send = send_and_die
    switch.broken = True
    await asyncio.sleep(120)
    assert [message.id for message in first.messages] == [second.messages[0].id]
    assert second.messages[0].count == first.messages[0].count


@played
async def test_a_broken_target_delays_and_fails_no_run_and_no_other_target(company):
    switch, good = Switch(), Inbox("good")
    broken = Inbox("broken", errors=[OSError("connection refused")] * 1000)
    slow = Inbox("slow")
    slow.delay = 10_000
    switch.broken = True
    member = await company.start("a", program(switch), notify=(broken, slow, good))
    await asyncio.sleep(600)
    assert good.kinds() == ["failure"]
    runs = await company.runs("report", State.FAILED)
    assert len(runs) >= 58
    assert all((run.started_at - run.due).total_seconds() < 1 for run in runs)
    known = (await state_of(company)).targets
    assert known["broken"].last_error == "OSError: connection refused"
    assert known["broken"].failures >= 5
    assert "TimeoutError" in known["slow"].last_error
    assert known["good"].sent == 1
    assert member.events(NotificationFailed)
    assert not member.events(ServiceFailed)


@played
async def test_a_target_that_comes_back_gets_what_it_missed(company):
    switch, inbox = Switch(), Inbox(errors=[OSError("away")] * 3)
    switch.broken = True
    await company.start("a", program(switch), notify=(inbox,))
    await asyncio.sleep(200)
    assert inbox.kinds() == ["failure"]


@played
async def test_a_rejected_message_is_not_sent_again(company):
    switch, inbox = Switch(), Inbox(errors=[DeliveryRejected("HTTP 400")])
    switch.broken = True
    await company.start("a", program(switch), notify=(inbox,))
    await asyncio.sleep(300)
    assert inbox.messages == []
    assert (await state_of(company)).targets["ops"].given_up == 1


@played
async def test_a_storm_of_failures_is_one_message(company):
    scheduler, inbox = Scheduler("memory://"), Inbox()

    async def explode() -> None:
        raise ValueError("boom")

    scheduler.add(Job(name="explode", handler=explode, retry=None))
    await company.start("a", scheduler, notify=(inbox,), notify_repeat=600, max_concurrent=1000)
    await asyncio.sleep(20)
    for _ in range(1_200):
        await company.submit("explode")
    await asyncio.sleep(700)
    assert sum(message.count for message in inbox.messages) == 1_200
    assert len(inbox.messages) <= 2
    assert inbox.messages[0].job == "explode"


@played
async def test_a_job_that_never_succeeds_again_is_overdue(company):
    switch, inbox = Switch(), Inbox(on=("overdue", "recovery"))
    await company.start("a", program(switch, every=60, expect_every=120), notify=(inbox,))
    await asyncio.sleep(300)
    assert inbox.messages == []
    switch.broken = True
    await asyncio.sleep(300)
    assert inbox.kinds() == ["overdue"]
    switch.broken = False
    await asyncio.sleep(120)
    assert inbox.kinds() == ["overdue", "recovery"]


@played
async def test_a_paused_job_is_not_overdue(company):
    switch, inbox = Switch(), Inbox(on=("overdue",))
    await company.start("a", program(switch, expect_every=600), notify=(inbox,))
    await asyncio.sleep(60)
    await company.definitions.pause("report", "")
    await asyncio.sleep(3600)
    assert inbox.messages == []


@played
async def test_runs_that_start_late_and_those_that_are_missed(company):
    switch, inbox = Switch(), Inbox(on=("late", "missed"))
    planner = await company.start(
        "planner", program(switch, every=60), notify=(inbox,), roles=("scheduler",), late_after=120
    )
    await asyncio.sleep(400)
    assert "late" in inbox.kinds()  # no worker lives
    await company.start("worker", program(switch, every=60), roles=("worker",), misfire_grace=60)
    await asyncio.sleep(400)
    assert "missed" in inbox.kinds()
    assert not planner.events(ServiceFailed)


@played
async def test_jobs_choose_their_targets(company):
    switch, ops, people = Switch(), Inbox("ops"), Inbox("people")
    switch.broken = True
    scheduler = program(switch, notify=["people"])

    async def quiet() -> None:
        raise ValueError("boom")

    scheduler.add(Job(name="quiet", handler=quiet, schedule=Every(seconds=10), retry=None, notify=False))
    await company.start("a", scheduler, notify=(ops, people))
    await asyncio.sleep(120)
    assert ops.messages == []
    assert {message.job for message in people.messages} == {"report"}


@played
async def test_a_state_that_cannot_be_read_is_replaced_and_reported(company):
    switch, inbox = Switch(), Inbox()
    member = await company.start("a", program(switch), notify=(inbox,))
    await asyncio.sleep(20)
    await company.office.backend.store.put(*NOTIFY, b"{not json")
    switch.broken = True
    await asyncio.sleep(60)
    assert inbox.kinds() == ["failure"]
    assert member.events(NotificationsLost)
    assert not member.events(ServiceFailed)


@played
async def test_what_was_settled_late_is_reported(company):
    """A store that is away: the ends of runs are stored long after they happened."""
    switch, inbox = Switch(), Inbox()
    await company.start("worker", program(switch, takes=3), roles=("worker",), lock_ttl=60)
    await company.start("sender", program(switch), roles=("scheduler",), notify=(inbox,), notify_repeat=0)
    switch.broken = True
    await company.until(lambda: company.runs("report", State.RUNNING))
    company.network.cut("worker")
    await asyncio.sleep(30)
    company.network.join("worker")
    await asyncio.sleep(60)
    switch.broken = False
    await asyncio.sleep(60)
    reported = sum(message.count for message in inbox.messages if message.kind == "failure")
    assert reported == len(await company.runs("report", State.FAILED))


async def test_nodes_without_targets_have_no_notifier():
    scheduler = Scheduler("memory://", SchedulerConfig(node_id="n"))
    async with scheduler:
        assert not any(isinstance(each, Notifier) for each in scheduler._running.node.services())


# --- on every store


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
async def test_every_store(kind, tmp_path, request):
    url = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path}/duly.db",
        "redis": lambda: request.getfixturevalue("redis_url"),
        "postgres": lambda: request.getfixturevalue("postgres_url"),
    }[kind]()
    inbox = Inbox()
    namespace = f"notify{os.getpid()}"
    scheduler = Scheduler(url, SchedulerConfig(namespace=namespace, notify_wait=0, notify_repeat=0))
    fails = True

    @scheduler.job(retry=None)
    async def report() -> None:
        if fails:
            raise ValueError("boom")

    async with scheduler:
        node = scheduler._running.node
        notifier = Notifier(replace(node._env), node._backend, [inbox])
        await notifier.tick()
        for _ in range(3):
            await scheduler.submit("report")
        await eventually_ended(scheduler, State.FAILED, 3)
        await notifier.tick()
        assert [(message.kind, message.count) for message in inbox.messages] == [("failure", 3)]
        fails = False
        await scheduler.submit("report")
        await eventually_ended(scheduler, State.COMPLETED, 1)
        await notifier.tick()
        await notifier.tick()
        assert inbox.kinds() == ["failure", "recovery"]
        assert (await scheduler.notifications()).targets["ops"].sent == 2


async def eventually_ended(scheduler, state, number):
    deadline = time.monotonic() + 20
    while len((await scheduler.runs("report", state)).runs) < number:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


# --- real processes


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


async def test_a_node_that_is_killed_between_sending_and_recording(tmp_path, receiver):
    processes = Processes(tmp_path)
    words = [str(SCRIPT), f"sqlite:///{tmp_path}/duly.db", receiver.url]
    try:
        processes.nodes["first"] = processes.spawn("first", words, {**os.environ, "KILL": "yes"})
        await processes.until(lambda: processes.nodes["first"].poll() is not None, "it has killed itself")
        assert len(receiver.requests) == 1
        processes.nodes["second"] = processes.spawn("second", words, dict(os.environ))
        await processes.until(lambda: len(receiver.requests) >= 2, "the message comes again")
    finally:
        processes.close()
    first, second = receiver.messages()[:2]
    assert first == second
    ids = [headers["Duly-Notification"] for _, headers, _ in receiver.requests]
    assert ids[0] == ids[1] == first["id"]
