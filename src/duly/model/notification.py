"""Notifications: messages to people about runs, and what the store records about them.

`NotifyState` is one value in the store: what has been seen, what is being collected, and which messages are still to be
delivered. One node at a time changes it, by compare-and-set; `rules.notifications` decides how.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from msgspec import Struct

NOTIFY = ("notify", "state")  # kind and key of the value in the store
NOTIFY_LEASE = "notify"  # the lease of the node that sends


class NotificationKind(StrEnum):
    """What a notification is about."""

    FAILURE = "failure"  # runs ended as failed or lost
    RECOVERY = "recovery"  # the first success after a failure, or after a job was overdue
    MISSED = "missed"  # due times that got no run, because it would have started too late
    LATE = "late"  # a scheduled run has been ready for long and has not started
    OVERDUE = "overdue"  # no run of the job has succeeded within `expect_every`
    DIGEST = "digest"  # many jobs at once
    TEST = "test"


CHOOSABLE_KINDS = tuple(
    kind.value for kind in NotificationKind if kind not in {NotificationKind.DIGEST, NotificationKind.TEST}
)


class Concern(Struct, frozen=True, omit_defaults=True):
    """One job in a digest."""

    kind: NotificationKind
    job: str
    count: int = 1
    error: str = ""


class Notification(Struct, frozen=True, omit_defaults=True):
    """One message. Its `id` stays the same if it is sent again: receivers can ignore what they have seen.

    `count` is how many runs it is about, from `first_at` to `last_at`; there may be more if `at_least`. `run_id`,
    `error` and `reason` are those of the latest one. `concerns` are the jobs of a digest, as far as they are listed.
    """

    id: str
    kind: NotificationKind
    text: str
    at: datetime
    job: str = ""
    count: int = 1
    at_least: bool = False
    first_at: datetime | None = None
    last_at: datetime | None = None
    run_id: str | None = None
    error: str = ""
    reason: str = ""
    concerns: tuple[Concern, ...] = ()


@runtime_checkable
class NotificationTarget(Protocol):
    """Somewhere to send notifications. Any object with these members can be passed to `Scheduler(notify=[…])`.

    `on` names the kinds that it gets. `send` returns when the message is delivered; whatever it raises is recorded, and
    the message is sent again later. It has 30 seconds.
    """

    @property
    def name(self) -> str: ...

    @property
    def on(self) -> tuple[str, ...]: ...

    async def send(self, notification: Notification, /) -> None: ...


class Group(Struct, frozen=True, omit_defaults=True):
    """What is being collected for one message about one job."""

    kind: NotificationKind
    job: str
    send_at: datetime
    count: int
    first_at: datetime
    last_at: datetime
    at_least: bool = False
    run_id: str | None = None
    error: str = ""
    reason: str = ""


class Failing(Struct, frozen=True, omit_defaults=True):
    """A job whose latest run failed, or that is overdue.

    `completed` is how many of its runs had completed by then: one more means that it has recovered. `started_at` is
    the start of the failed run. `told` says whether a message about it was made.
    """

    since: datetime
    started_at: datetime
    completed: int | None = None
    told: bool = False


class Expectation(Struct, frozen=True, omit_defaults=True):
    """A job that must succeed at least every `every` seconds: its last success, or since when that is expected."""

    every: float
    since: datetime
    completed: int | None = None
    overdue: bool = False


class Delivery(Struct, frozen=True, omit_defaults=True):
    """A message that has yet to reach one target."""

    target: str
    notification: Notification


class TargetState(Struct, frozen=True, omit_defaults=True):
    """What happened at one target. `about` describes it without secrets; `failures` counts those in a row."""

    about: str = ""
    on: tuple[str, ...] = ()
    node: str = ""
    sent: int = 0
    given_up: int = 0
    dropped: int = 0
    failures: int = 0
    retry_at: datetime | None = None
    last_sent_at: datetime | None = None
    last_error: str = ""
    last_error_at: datetime | None = None


class NotifyState(Struct, frozen=True, omit_defaults=True):
    """Everything that must survive the node that sends.

    `totals` are the store's counters of ended runs that have been looked at, `seen` the runs among the latest ones.
    `muted` is until when further events of a kind and job are only counted. `scan` is the job up to which definitions
    have been searched for expectations.
    """

    since: datetime
    totals: dict[str, int] = {}
    seen: tuple[str, ...] = ()
    groups: dict[str, Group] = {}
    muted: dict[str, datetime] = {}
    failing: dict[str, Failing] = {}
    expected: dict[str, Expectation] = {}
    outbox: tuple[Delivery, ...] = ()
    targets: dict[str, TargetState] = {}
    made: int = 0
    scan: str = ""
    expected_at: datetime | None = None
