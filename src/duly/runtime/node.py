"""A node: one process of the cluster, composed of its services.

Built on an opened backend; started once, stopped once. A graceful stop hands over at once: stop claiming, resign,
drain, then cancel and give back what is left, flush settlements, retire. Each step has its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from duly.errors import BackendError, BackendUnavailable, ConfigurationError, RunFailed, RunLost
from duly.model import Node as NodeCard
from duly.model import Role, State
from duly.model.event import NodeIdShared, NodeStarted, NodeStopped
from duly.model.job import MAIN
from duly.ports import Backend
from duly.ports.waiting import noticed
from duly.rules.cluster_settings import InForce
from duly.rules.namesakes import describe, is_other, is_sibling, surely_lives
from duly.rules.schedules import ScheduleInCode
from duly.rules.shards import KNOWN_SHARDS, SHARDS, STOPPING
from duly.rules.waiting import CLOSED
from duly.runtime import log_capture
from duly.runtime.active_runs import ActiveRuns
from duly.runtime.assigner import Assigner
from duly.runtime.attempt import Attempts
from duly.runtime.context_link import NodeContexts
from duly.runtime.deadlines import Deadlines
from duly.runtime.dispatcher import Dispatcher, Listener
from duly.runtime.elector import Elector
from duly.runtime.environment import Environment, process_began
from duly.runtime.executors import BuiltinExecutor
from duly.runtime.handler import Catalog
from duly.runtime.heartbeat import NUDGE_PERIOD, Heartbeat, HeartbeatThread, at_once, longest_retry
from duly.runtime.hooks import Hooks
from duly.runtime.janitor import Janitor
from duly.runtime.live_config import SettingsWatcher
from duly.runtime.next_due import NextDue
from duly.runtime.notify.notifier import Notifier
from duly.runtime.outages import OutageLog
from duly.runtime.outbox import Outbox
from duly.runtime.planner import Planner
from duly.runtime.presence import Deploy, Presence, Resync
from duly.runtime.quarantine import Quarantine
from duly.runtime.rates import ENDED, LAST_START, STARTED
from duly.runtime.reading_ahead import ReadAhead
from duly.runtime.reaper import Reaper
from duly.runtime.reporter import Reporter
from duly.runtime.service import LONGEST_RETRY, Nudge, Service, ServiceHealth, Signal, serve
from duly.runtime.settler import Settler
from duly.runtime.shard_layout import ShardLayout
from duly.runtime.stages import Stages
from duly.runtime.stalls import LONGEST_SILENCE, LoopWatch
from duly.runtime.timekeeper import Timekeeper
from duly.runtime.timer import sleep_by_loop, timerfd
from duly.runtime.transactions import Compose, Transactions
from duly.runtime.worker import Worker

# When each step of a stop ends at the latest, in seconds after the handlers' time limit. The process has two in all.
# Most of it is for the store: it may stall for a moment, and a run that is not reported to it counts as a crash.
_SECOND_WORD_AFTER = 0.3
_ABANDONED_AFTER = 0.5
_SETTLED_AFTER = 1.45
_ENDED_AFTER = 1.55
_RETIRED_AFTER = 1.62
_ASK_AGAIN = 0.1
_STEP = 1.0  # how long resigning waits for one answer of the store, in parallel with the draining
_HINT_PERIOD = 0.1
_BALANCE_PERIOD = 0.5  # checking all shards costs more, and runs are planned half a minute ahead
_PLACE_PERIOD = 0.01  # submitted runs wait for it with placement="assign"
_GIVE_BACK = 500

FAILING = "failing"  # node metric: how many of its services fail repeatedly
CLOCK_DOUBT = "clock_doubt"  # node metric: by how many seconds the store's clock has jumped
SETTINGS = "settings"  # node metric: the revision of the cluster's settings that it applies
PINNED = "pinned:"  # node metric, prefix of a name: a cluster setting that the node's own configuration overrides


class Code(Struct, frozen=True):
    """What the user's code provides: handlers by name, schedules that only code can compute, a way to deploy it."""

    catalog: Catalog
    compose: Compose
    deploy: Deploy
    shards: Callable[[], Collection[str]] = lambda: (MAIN,)
    schedules: ScheduleInCode = lambda _: None


class Stopped(Struct, frozen=True):
    """What became of the runs that a node had when it began to stop, as the store has acknowledged it.

    The handlers of `drained` runs finished, `released` runs were given back, `interrupted` runs ended because they may
    not begin twice. `left` are none of these: the store could not be reached, and their leases expire.
    """

    drained: int
    released: int
    interrupted: int = 0
    left: int = 0


class Node:
    """The services of one process and how they wake each other. Belongs to the event loop it is built on."""

    def __init__(
        self,
        env: Environment,
        backend: Backend,
        code: Code,
        executors: Mapping[str, BuiltinExecutor],
    ) -> None:
        self._env = env
        self._backend = backend
        self._catalog = code.catalog
        self._timer = timerfd(asyncio.get_running_loop())
        self._watch = self._make_watch()
        self._deadlines = Deadlines()
        outbox = Outbox(lambda: env.config.keep_logs, env.clock)
        self.active_runs = ActiveRuns(outbox)
        self.reporter = Reporter(env, backend.store, self.active_runs, outbox)
        self.health = ServiceHealth(env.clock.monotonic)
        self._build_worker(code, executors)
        self._build_scheduler(code)
        self.deployer = Resync(code.deploy)
        self.listener = Listener(env, backend.queue, heard=self._heard)
        self.settings = SettingsWatcher(backend.coordinator, env.live)
        self.heartbeat, self.presence, self.timekeeper = self._make_heartbeat(env, backend, at_once)
        self._heartbeat_thread: HeartbeatThread | None = None
        self._nudge_elector = Nudge(self.elector.signal, _HINT_PERIOD)
        self._nudge_balance = Nudge(self.elector.signal, _BALANCE_PERIOD)
        self._nudge_planner = Nudge(self.planner.signal, _HINT_PERIOD)
        period = _PLACE_PERIOD if env.config.placement == "assign" else _HINT_PERIOD
        self._nudge_assigner = Nudge(self.assigner.signal, period)
        self._nudge_heartbeat = Nudge(self.heartbeat.signal, NUDGE_PERIOD)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: asyncio.Task[None] | None = None
        self._serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hurry = asyncio.Event()
        self._replaced = False
        self._ignore_settings = env.live.subscribe(self._reconfigured)
        if self._works:
            log_capture.attach(self.active_runs)

    def _build_worker(self, code: Code, executors: Mapping[str, BuiltinExecutor]) -> None:
        env, queue, store = self._env, self._backend.queue, self._backend.store
        self._hooks = hooks = Hooks(env.config.on_error, env.config.on_failure, env.emit)
        transactions = Transactions(store, code.compose, lambda: env.config.transaction_limit)
        contexts = NodeContexts(env.clock.monotonic, transactions)
        due = Signal(self._timer or sleep_by_loop)
        self.next_due = NextDue(due, env.clock.now)
        attempts = Attempts(env, executors, self._deadlines, hooks, contexts)
        self.settler = Settler(
            env,
            queue,
            self.active_runs,
            hooks,
            self.next_due,
            drained=self._results_drained,
            held=self._run_held,
            reporter=self.reporter,
        )
        self.ahead = ReadAhead(env, queue, self._backend, code.catalog, self.next_due)
        running = (self.settler, self.active_runs)
        self.worker = Worker(env, queue, code.catalog, attempts, *running, self.next_due, self.ahead)
        self.dispatcher = Dispatcher(env, queue, self.worker, self.next_due, due)
        self.reaper = Reaper(env, queue, self.settler, code.catalog)
        self.quarantine = Quarantine(env, self._backend, self.worker, self.active_runs, code.catalog)

    def _build_scheduler(self, code: Code) -> None:
        env, store = self._env, self._backend.store
        self.layout = layout = ShardLayout(env, store)
        self.elector = Elector(env, self._backend.coordinator, store, code.shards, self._became_leader, layout)
        self.assigner = Assigner(env, self._backend, self.elector)
        wake = self.assigner.signal.wake
        coordinator = self._backend.coordinator
        self.planner = Planner(
            env, store, coordinator, self.elector, layout, code.schedules, self.next_due, to_place=wake
        )
        self.janitor = Janitor(
            env, self._backend, self.elector, code.schedules, self.next_due, changed=self.planner.signal.wake
        )

    def _make_heartbeat(
        self, env: Environment, backend: Backend, tell: Callable[..., None]
    ) -> tuple[Heartbeat, Presence, Timekeeper]:
        return (
            Heartbeat(env, backend.queue, self.active_runs, self.worker, OutageLog(env, backend.store), tell),
            Presence(env, backend.coordinator, self.card_now, self.deployer.ask, self._meet, tell),
            Timekeeper(env, backend.store),
        )

    def _make_watch(self) -> LoopWatch | None:
        """The watch that notices a blocked loop; None for a simulated loop, whose time no thread can share."""
        if self._timer is None and not self._backend.capabilities.threads:
            return None
        limit = min(self._env.config.refresh, LONGEST_SILENCE)
        return LoopWatch(self._env.emit, self._env.clock.monotonic, limit)

    @property
    def id(self) -> str:
        return self._env.card.id

    def card_now(self) -> NodeCard:
        """How this node announces itself at this moment."""
        metrics = {
            "running": float(self.worker.busy),
            "slots": float(self._env.config.max_concurrent),
            "leader": float(self.elector.leads),
            **self.worker.pace.rates(STARTED),
            **self.settler.pace.rates(ENDED),
        }
        in_force = self._env.live.in_force
        if in_force.revision:
            metrics[SETTINGS] = float(in_force.revision)
        metrics |= {f"{PINNED}{name}": 1.0 for name in in_force.pinned}
        if self.layout.wanted > 1:
            metrics[SHARDS] = float(self.layout.wanted)
        if self.layout.known > 1:
            metrics[KNOWN_SHARDS] = float(self.layout.known)
        if failing := self.health.failing():
            metrics[FAILING] = float(len(failing))
        if doubt := self._env.clock.doubt:
            metrics[CLOCK_DOUBT] = doubt
        if self.worker.closed:
            metrics[CLOSED] = 1.0
        if self.worker.last_start is not None:
            metrics[LAST_START] = self.worker.last_start
        config = self._env.config
        card = replace(
            self._env.card,
            handlers=self._catalog.names,
            capacity=config.max_concurrent,
            queues=config.queue_names,
            metrics=metrics,
        )
        return replace(card, capacity=0, metrics=metrics | {STOPPING: 1.0}) if self.worker.stopping else card

    def services(self) -> list[Service]:
        """The services of this node's roles."""
        services: list[Service] = [self.listener, self.deployer, self.settings]
        if self._works:
            services += [self.settler, self.reporter, self.worker, self.dispatcher, self.ahead, self.reaper]
            services += [self.quarantine]
        if self._schedules:
            services += [self.elector, self.planner, self.assigner, self.janitor]
            if targets := self._env.config.notify:
                services.append(Notifier(self._env, self._backend, targets))
        return services

    @property
    def _works(self) -> bool:
        return Role.WORKER in self._env.card.roles

    @property
    def _schedules(self) -> bool:
        return Role.SCHEDULER in self._env.card.roles

    # --- how services wake each other

    def _results_drained(self) -> None:
        self.worker.look()

    def _run_held(self) -> None:
        self.quarantine.signal.wake()

    def _became_leader(self) -> None:
        self.planner.signal.wake()
        self.assigner.signal.wake()
        self.janitor.signal.wake()

    def _heard(self) -> None:
        """The store says that something changed."""
        if self._works:
            self.dispatcher.look()
        if self._schedules:
            self._heard_by_scheduler()
        if len(self.active_runs) == 0:
            return
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.nudge()
        else:
            self._nudge_heartbeat()

    def _heard_by_scheduler(self) -> None:
        if self.layout.known > 1:
            self._nudge_balance()
            if self.elector.led():
                self._nudge_planner()
        else:
            (self._nudge_planner if self.elector.leads else self._nudge_elector)()
        if self.elector.leads:
            self._nudge_assigner()

    def _meet(self, other: NodeCard | None) -> None:
        """Another process has announced itself under this node's id, or has not for a while."""
        if other is not None and not self.health.shares_id:
            self._env.emit(NodeIdShared(other.id, other.host, other.pid, other.started_at))
        self.health.share_id("" if other is None else describe(other))

    def _reconfigured(self, before: InForce, after: InForce) -> None:
        """The settings have changed: wake the services that sleep according to the old ones."""
        if before.config.queues != after.config.queues:
            self.ahead.forget()
        self.worker.look()
        for service in (self.worker, self.dispatcher, self.elector, self.planner, self.assigner, self.janitor):
            service.signal.wake()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.announce()
        else:
            self.presence.signal.wake()

    def changed(self) -> None:
        """This process has written definitions: do not wait for the store's notification."""
        self.planner.signal.wake()

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Stop these runs if they run here; faster than waiting for the next heartbeat."""
        self.worker.cancel(self.active_runs.of_runs(run_ids))

    # --- life

    async def start(self) -> None:
        """Announce this node and run its services. Without a coordinator it is announced later, by its presence.

        If this fails or is cancelled, everything is undone.
        """
        with suppress(BackendUnavailable):
            await self._refuse_namesakes()
        try:
            with suppress(BackendUnavailable):
                await self._backend.coordinator.announce(self.card_now(), self._env.config.lease)
            await self._begin()
        except BaseException:
            await self._end(Stages(self._env.emit))
            raise
        self._env.emit(NodeStarted(self.id, self._backend.url))

    async def _refuse_namesakes(self) -> None:
        """Refuse to start while another process has the same id. What an ended process has left behind is ignored."""
        card = self._env.card
        for each in await self._backend.coordinator.nodes():
            if is_sibling(each, card):
                continue  # this process replaces it
            if is_other(each, card) and surely_lives(each, card, process_began(each.pid, self._env.clock.now())):
                way_out = "give each process its own node id (--node-id, WORKER_ID, SchedulerConfig(node_id=…))"
                raise ConfigurationError(f"node id {self.id!r} is in use by {describe(each)}: {way_out}")

    async def _begin(self) -> None:
        if self._watch is not None:
            self._watch.start()
        if self._backend.capabilities.threads:
            self._heartbeat_thread = HeartbeatThread(self._env, self._backend, self._make_heartbeat, self.health)
            await self._heartbeat_thread.start()
        self._runner = asyncio.get_running_loop().create_task(self._run(), name=f"duly-node-{self.id}")
        await asyncio.wait([self._serving, self._runner], return_when=asyncio.FIRST_COMPLETED)
        if self._runner.done():
            self._runner.result()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._heartbeat_thread is None:
                for keeper in (self.heartbeat, self.presence, self.timekeeper):
                    self._serve(group, keeper, longest_retry(self._env.config))
            for service in self.services():
                self._serve(group, service)
            self._serving.set_result(None)

    def _serve(self, group: asyncio.TaskGroup, service: Service, longest: float = LONGEST_RETRY) -> None:
        serving = serve(service, self._env.emit, self.health, longest)
        self._tasks.append(group.create_task(serving, name=f"duly-{service.name}"))

    def rescue(self, patience: float) -> int:
        """From another thread, when this loop is blocked and the process must exit: release all runs; their number."""
        thread = self._heartbeat_thread
        return 0 if thread is None else thread.give_back(self.settler.unsent(), patience)

    async def tell_hooks(self, run_ids: Sequence[str]) -> None:
        """Call the failure hooks for runs that ended while no process of this node was there to call them."""
        for run_id in run_ids:
            run = await self._backend.store.run(run_id)
            if run is not None and run.state in (State.FAILED, State.LOST):
                error = RunLost if run.state is State.LOST else RunFailed
                message = run.failure.message if run.failure else run.state.value
                self._hooks.ended(run, self._catalog.find(run), error(message, run))

    def replaced(self) -> None:
        """Another process has this node's id from now on; this one is about to stop."""
        self._replaced = True

    def hurry(self) -> None:
        """Do not wait for running handlers any longer."""
        self._hurry.set()

    # --- stopping

    async def stop(self, timeout: float | None, stages: Stages | None = None) -> Stopped:
        """Hand over and end. Handlers may run on for `timeout` seconds (None: as long as they take).

        After that it takes less than 1.7 seconds, whatever handlers, hooks and the store do: what still runs is
        cancelled, then given back. Never raises; events report what hindered it.
        """
        stages = stages or Stages(self._env.emit)
        farewell = self.settler.begin_farewell()
        self.worker.stop_claiming()
        stepping_back = stages.aside("step back", self._step_back(Stages(self._env.emit)))
        await self._drain(timeout)
        stages.begin()
        await stages.run("interrupt", self._interrupt(), _SETTLED_AFTER)
        await stages.run("settle", self._stored(), _SETTLED_AFTER)
        await stages.end("step back", stepping_back, _SETTLED_AFTER)
        await self._end(stages)
        stopped = Stopped(farewell.finished, farewell.given_back, farewell.interrupted, len(self.active_runs))
        report = NodeStopped(self.id, stopped.drained, stopped.released, stopped.interrupted, stopped.left)
        self._env.emit(report)
        return stopped

    async def _step_back(self, stages: Stages) -> None:
        """Announce that this node takes no more runs, hand over the leadership, and release runs assigned to it.

        If another process of this node goes on, all this is the other's already.
        """
        if self._replaced:
            await stages.run("resign", self.elector.resign(release=False), 2 * _STEP)
            return
        coordinator, lease = self._backend.coordinator, self._env.config.lease
        await stages.run("announce", coordinator.announce(self.card_now(), lease), _STEP)
        await stages.run("resign", self.elector.resign(), 2 * _STEP)
        if self._works:
            await stages.run("unassign", self._unassign(), 60 * _STEP)

    async def _unassign(self) -> None:
        while await self._backend.queue.unassign(self.id, _GIVE_BACK) == _GIVE_BACK:
            pass

    async def _drain(self, timeout: float | None) -> None:
        """Let handlers end and store their outcomes, until the time limit or until `hurry` is called."""
        loop = asyncio.get_running_loop()
        draining, hurrying = loop.create_task(self._drained()), loop.create_task(self._hurry.wait())
        await asyncio.wait([draining, hurrying], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurrying):
            task.add_done_callback(noticed)
            task.cancel()

    async def _drained(self) -> None:
        await self.worker.idle()
        await self._stored()

    async def _interrupt(self) -> None:
        """End the handlers that still run: cancel them twice, then give back those that go on."""
        self._hooks.hurry()
        begin = asyncio.get_running_loop().time()
        for until in (_SECOND_WORD_AFTER, _ABANDONED_AFTER):
            self.worker.interrupt()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(begin + until):
                    await self.worker.idle()
        self.worker.abandon()

    async def _stored(self) -> None:
        """Return when no claim is under way and all results are stored; that may take as long as an outage."""
        await self.worker.withdraw()
        while True:
            with suppress(BackendError):
                await self.settler.flush()
                return
            await asyncio.sleep(_ASK_AGAIN)

    async def _end(self, stages: Stages) -> None:
        """End the services, with the heartbeat last among them: until here all claims were kept."""
        await stages.run("end services", self._end_services(), _ENDED_AFTER)
        if not (self._replaced or self.health.shares_id):  # else another process has the presence by now
            await stages.run("retire", self._backend.coordinator.retire(self.id), _RETIRED_AFTER)
        self.dispose()

    async def _end_services(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await asyncio.wait([self._runner])
        if self._heartbeat_thread is not None:
            await self._heartbeat_thread.stop()

    async def abandon(self) -> None:
        """End without notifying the store: the loop is about to be closed."""
        await self._end_services()
        self.dispose()

    def dispose(self) -> None:
        """Release the resources of this process."""
        log_capture.detach(self.active_runs)
        self._ignore_settings()
        self._deadlines.close()
        self._hooks.close()
        for nudge in (
            self._nudge_elector,
            self._nudge_balance,
            self._nudge_planner,
            self._nudge_assigner,
            self._nudge_heartbeat,
        ):
            nudge.close()
        if self._watch is not None:
            self._watch.close()
        if self._timer is not None:
            self._timer.close()
            self._timer = None
