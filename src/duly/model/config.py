"""Settings of a node: one frozen value, validated when it is created."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import force_setattr

from duly.errors import ConfigurationError, shown
from duly.model.identity import is_job_name
from duly.model.node import Role
from duly.model.notification import NotificationTarget
from duly.model.run_log import KEEP_LOGS, MOST_KEPT
from duly.model.sanitize import checked_whole

Hook = Callable[..., Any]
Duration = float | timedelta

_DAY = 86400.0
LEAST_HORIZON = 30.0  # seconds: runs are created at least this far ahead, whatever the settings
MOST_SHARDS = 64

RETAINED = ("completed", "failed", "cancelled", "lost", "skipped")  # the final states

# The settings that can change while nodes run (`rules.cluster_settings`).
CHANGEABLE = (
    "max_concurrent",
    "queues",
    "tick_interval",
    "misfire_grace",
    "max_losses",
    "assign_ahead",
    "shards",
    "shutdown_timeout",
    "transaction_timeout",
    "max_payload_bytes",
    "keep_events",
    *(f"retention.{name}" for name in RETAINED),
    *(f"retention.max_{name}" for name in RETAINED),
    "log_level",
    "token_rate",
    "handler_rates",
)

_LEAST_KEY = 16
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NODE_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,127}", re.ASCII)
_LABEL = re.compile(r"[\w.:/-]{1,128}", re.ASCII)


def _seconds(name: str, value: object, least: float, most: float) -> float:
    plain = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not least <= plain <= most:
        raise ConfigurationError(f"{name}={shown(value)}: expected a duration from {least:g} to {most:g} seconds")
    return float(plain)


def _choice(name: str, value: object, allowed: tuple[str | bool | None, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"{name}={shown(value)}: expected one of {', '.join(map(str, allowed))}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _fits(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _strings(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, tuple | list) or not all(isinstance(v, str) for v in value):
        raise ConfigurationError(f"{name}={shown(value)}: expected a list of strings")
    return tuple(value)


def _roles(value: object) -> tuple[Role, ...]:
    try:
        roles = tuple(Role(role) for role in _strings("roles", value))
    except ValueError as exc:
        raise ConfigurationError(f"roles={shown(value)}: expected any of {', '.join(Role)}") from exc
    if not roles:
        raise ConfigurationError(f"roles={shown(value)}: expected at least one of {', '.join(Role)}")
    return roles


def _queues(value: object) -> tuple[str, ...] | dict[str, float] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        for queue, weight in value.items():
            if not isinstance(weight, int | float) or not 0 < weight < 1e9:
                raise ConfigurationError(
                    f"queues={shown(value)}: expected a positive number as the weight of {shown(queue)}"
                )
        return {str(queue): float(weight) for queue, weight in value.items()}
    return _strings("queues", value)


def _pinned(value: object) -> tuple[str, ...]:
    names = _strings("pinned", value)
    for name in names:
        if name not in CHANGEABLE and name != "*":
            raise ConfigurationError(f"pinned={shown(name)}: expected * or one of {', '.join(CHANGEABLE)}")
    return names


def _targets(value: object, allow_commands: object) -> tuple[NotificationTarget, ...]:
    if not isinstance(value, tuple | list):
        raise ConfigurationError(f"notify={shown(value)}: expected a list of targets, such as Webhook(…)")
    names: set[str] = set()
    for target in value:
        if isinstance(target, type) or not isinstance(target, NotificationTarget):
            raise ConfigurationError(f"notify: {shown(target)} is not a target: it needs name, on and send()")
        if target.name in names:
            raise ConfigurationError(f"notify: two targets are named {shown(target.name)}: give one another name=…")
        if getattr(target, "needs_commands", False) and not allow_commands:
            raise ConfigurationError(
                f"notify {target.name!r} runs a command: that needs SchedulerConfig(allow_commands=True)"
            )
        names.add(target.name)
    return tuple(value)


def labels_of(name: str, value: object) -> dict[str, str]:
    """Validate labels: those of a node, or those that a selector requires."""
    if not isinstance(value, Mapping) or not all(_fits(_LABEL, part) for pair in value.items() for part in pair):
        raise ConfigurationError(
            f"{name}={shown(value)}: expected a dict of names and values, each of letters, digits and _ . : / -"
        )
    return dict(value)


class Retention(Struct, frozen=True):
    """How long ended runs are kept, in seconds, and at most how many of each state. None means no limit."""

    completed: float | None = 1 * _DAY
    failed: float | None = 30 * _DAY
    cancelled: float | None = 30 * _DAY
    lost: float | None = 30 * _DAY
    skipped: float | None = 30 * _DAY
    max_completed: int | None = 1_000_000
    max_failed: int | None = 100_000
    max_cancelled: int | None = 100_000
    max_lost: int | None = 100_000
    max_skipped: int | None = 100_000

    def __post_init__(self) -> None:
        for name in RETAINED:
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, _seconds(f"retention.{name}", value, 0.0, 1e9))
            most = getattr(self, f"max_{name}")
            if most is not None:
                checked_whole(f"retention.max_{name}", most, 0, 1 << 53)


class SchedulerConfig(Struct, frozen=True, kw_only=True):
    """How a node behaves. Durations are seconds or timedeltas; the defaults suit most deployments.

    `tick_interval` is a safety net only: work is found by timers and wake-ups. `lock_ttl` is how long a claim lasts
    without renewal, `leader_ttl` the same for leadership. A run fails once its worker has vanished `max_losses` times,
    if it was the only run on that worker the last time; use the same number on all nodes. `queues` is None for all, a
    list, or a dict of weights. With `placement` "assign" the leader decides which node starts a run, and assigns each
    node up to `assign_ahead` runs before they are due; a job's selector is matched against `labels`. Jobs are spread
    over `shards`, each of which is planned by one scheduler node; use the same number on all nodes. `allow_commands`
    lets jobs in code run commands; "stored" also lets the node run commands from definitions in the store, such as the
    jobs of a file. `publish_events` writes events of runs, jobs and nodes to a log in the store that other processes
    can follow; the log keeps the newest `keep_events`. None means off, except in processes of the command line.
    `keep_logs` is how many lines of a run's log are kept, for jobs that do not set it themselves; 0 keeps none. With
    `audit_key`, a secret of at least 16 characters, entries of the audit log are authenticated. `pinned` names settings
    for which this process keeps its own value and ignores the cluster's; "*" pins all. `notify` are the targets of
    notifications: events of a job are collected for `notify_wait` and then sent as one message, after which the job is
    muted for `notify_repeat`; a scheduled run is late if it has been ready for `late_after`.
    """

    tick_interval: Duration = 5.0
    max_concurrent: int = 10
    lock_ttl: Duration = 15.0
    lock_refresh_interval: Duration | None = None
    leader_ttl: Duration = 10.0
    shutdown_timeout: Duration | None = 30.0
    transaction_timeout: Duration = 1.0
    timezone: str = "UTC"
    namespace: str = "duly"
    node_id: str | None = None
    roles: tuple[str, ...] = ("scheduler", "worker")
    queues: tuple[str, ...] | Mapping[str, float] | None = None
    labels: Mapping[str, str] = {}
    misfire_grace: Duration = 60.0
    max_losses: int = 3
    retention: Retention = Retention()
    max_payload_bytes: int = 262_144
    max_result_bytes: int = 65_536
    registry: Literal["live", "frozen"] = "live"
    placement: Literal["queue", "assign"] = "queue"
    assign_ahead: int = 2
    shards: int = 1
    default_handler: str | None = None
    allow_commands: bool | Literal["stored"] = False
    accept_data_loss: bool = False
    imports: tuple[str, ...] = ()
    publish_events: bool | None = None
    keep_events: int = 50_000
    keep_logs: int = KEEP_LOGS
    audit_key: str | None = None
    pinned: tuple[str, ...] = ()
    notify: tuple[NotificationTarget, ...] = ()
    notify_wait: Duration = 10.0
    notify_repeat: Duration = 3600.0
    late_after: Duration = 300.0
    on_error: Hook | None = None
    on_failure: Hook | None = None

    def __post_init__(self) -> None:
        self._check_durations()
        checked_whole("max_concurrent", self.max_concurrent, 1, 100_000)
        checked_whole("max_losses", self.max_losses, 2, 1000)
        checked_whole("max_payload_bytes", self.max_payload_bytes, 2, 1 << 30)
        checked_whole("max_result_bytes", self.max_result_bytes, 2, 1 << 30)
        checked_whole("assign_ahead", self.assign_ahead, 1, 1000)
        checked_whole("shards", self.shards, 1, MOST_SHARDS)
        checked_whole("keep_events", self.keep_events, 1, 10_000_000)
        checked_whole("keep_logs", self.keep_logs, 0, MOST_KEPT)
        _choice("publish_events", self.publish_events, (None, False, True))
        _choice("registry", self.registry, ("live", "frozen"))
        _choice("placement", self.placement, ("queue", "assign"))
        _choice("allow_commands", self.allow_commands, (False, True, "stored"))
        self._check_names()
        self._check_audit_key()
        force_setattr(self, "roles", _roles(self.roles))
        force_setattr(self, "queues", _queues(self.queues))
        force_setattr(self, "imports", _strings("imports", self.imports))
        force_setattr(self, "labels", labels_of("labels", self.labels))
        force_setattr(self, "pinned", _pinned(self.pinned))
        force_setattr(self, "notify", _targets(self.notify, self.allow_commands))

    def _check_durations(self) -> None:
        for name, least, most in (
            ("tick_interval", 0.01, 3600.0),
            ("lock_ttl", 0.1, 3600.0),
            ("leader_ttl", 0.1, 3600.0),
            ("transaction_timeout", 0.001, 3600.0),
            ("misfire_grace", 0.0, 366 * _DAY),
            ("notify_wait", 0.0, 3600.0),
            ("notify_repeat", 0.0, 30 * _DAY),
            ("late_after", 1.0, 30 * _DAY),
        ):
            force_setattr(self, name, _seconds(name, getattr(self, name), least, most))
        if self.shutdown_timeout is not None:
            force_setattr(self, "shutdown_timeout", _seconds("shutdown_timeout", self.shutdown_timeout, 0.0, 7 * _DAY))
        if self.lock_refresh_interval is not None:
            half = self.lease / 2
            value = _seconds("lock_refresh_interval", self.lock_refresh_interval, 0.01, half)
            force_setattr(self, "lock_refresh_interval", value)

    def _check_names(self) -> None:
        if not _fits(_NAMESPACE, self.namespace):
            raise ConfigurationError(f"namespace={shown(self.namespace)}: [a-z][a-z0-9_]*, at most 32 characters")
        if self.node_id is not None and not _fits(_NODE_ID, self.node_id):
            raise ConfigurationError(
                f"node_id={shown(self.node_id)}: letters, digits and _ . : -, at most 128 characters"
            )
        if self.default_handler is not None and not is_job_name(self.default_handler):
            raise ConfigurationError(f"default_handler={shown(self.default_handler)}: not the name of a handler")
        try:
            ZoneInfo(self.timezone)
        except Exception as exc:
            raise ConfigurationError(f"timezone={shown(self.timezone)}: not a known IANA time zone") from exc

    def _check_audit_key(self) -> None:
        if self.audit_key is not None and (not _is_text(self.audit_key) or len(self.audit_key) < _LEAST_KEY):
            raise ConfigurationError(
                f"audit_key: expected a text of at least {_LEAST_KEY} characters, preferably random"
            )

    def __repr__(self) -> str:
        """All fields except the secret one."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.audit_key is not None:
            shown["audit_key"] = "***"
        return f"SchedulerConfig({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def lease(self) -> float:
        """`lock_ttl` in seconds."""
        return _seconds("lock_ttl", self.lock_ttl, 0.0, 3600.0)

    @property
    def refresh(self) -> float:
        """How often claims are renewed."""
        interval = self.lock_refresh_interval
        return self.lease / 3 if interval is None else _seconds("lock_refresh_interval", interval, 0.0, 3600.0)

    @property
    def silence(self) -> float:
        """The longest gap between heartbeats while nodes reach the store; after it, leases may have expired."""
        return max(self.lease - self.refresh, 1.25 * self.refresh)

    @property
    def leader_lease(self) -> float:
        """`leader_ttl` in seconds."""
        return _seconds("leader_ttl", self.leader_ttl, 0.0, 3600.0)

    @property
    def safety_tick(self) -> float:
        """`tick_interval` in seconds."""
        return _seconds("tick_interval", self.tick_interval, 0.0, 3600.0)

    @property
    def transaction_limit(self) -> float:
        """`transaction_timeout` in seconds."""
        return _seconds("transaction_timeout", self.transaction_timeout, 0.0, 3600.0)

    @property
    def grace(self) -> timedelta:
        """`misfire_grace` as a timedelta."""
        return timedelta(seconds=_seconds("misfire_grace", self.misfire_grace, 0.0, 366 * _DAY))

    @property
    def notify_times(self) -> tuple[float, float, float]:
        """`notify_wait`, `notify_repeat` and `late_after` in seconds."""
        times = (self.notify_wait, self.notify_repeat, self.late_after)
        wait, repeat, late = (_seconds("notify", each, 0.0, 30 * _DAY) for each in times)
        return wait, repeat, late

    @property
    def horizon(self) -> timedelta:
        """How far ahead runs are created: long enough to outlast a change of leaders."""
        return timedelta(seconds=max(LEAST_HORIZON, 3 * self.leader_lease))

    @property
    def queue_names(self) -> tuple[str, ...] | None:
        """The queues to work on, None for all."""
        return None if self.queues is None else tuple(self.queues)


def config_of(given: SchedulerConfig | Mapping[str, Any] | None) -> SchedulerConfig:
    """The configuration for what a program passes: a configuration, a mapping of its fields, or None."""
    match given:
        case None:
            return SchedulerConfig()
        case SchedulerConfig():
            return given
        case Mapping():
            fields = dict(given)
            _refuse_unknown("config", fields, SchedulerConfig)
            if isinstance(retention := fields.get("retention"), Mapping):
                _refuse_unknown("config: retention", retention, Retention)
                fields["retention"] = Retention(**retention)
            return SchedulerConfig(**fields)
        case _:
            raise ConfigurationError(f"config={shown(given)}: expected a SchedulerConfig or a mapping of its fields")


def _refuse_unknown(where: str, fields: Mapping[Any, Any], kind: type[Struct]) -> None:
    for name in fields:
        if name not in kind.__struct_fields__:
            import difflib  # noqa: PLC0415  # needed only for a wrong name

            near = difflib.get_close_matches(str(name), kind.__struct_fields__, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(kind.__struct_fields__)}"
            raise ConfigurationError(f"{where}: unknown field {shown(name)}; {hint}")
