"""Calls: the messages between a worker and a child interpreter, as msgpack frames.

The worker sends `Call`, and `Signs` while the call runs. The child sends `Began`, then any number of `Advanced` and
`Logged`, then one `Ended`. Only then may the next call come.
"""

from __future__ import annotations

from msgspec import Struct, msgpack

from duly.model import Progress, Run
from duly.runtime.executors.import_path import Target


class Call(Struct, frozen=True, tag="call"):
    """Call this function for this run. `level` is the lowest level of log records to send."""

    target: Target
    run: Run
    takes_context: bool
    binder: str
    encoder: str
    max_result_bytes: int
    cwd: str
    level: int


class Signs(Struct, frozen=True, tag="signs"):
    """What the handler's context reports from now on. `stop`: it will be killed soon."""

    cancelled: bool = False
    owned: bool = True
    stop: bool = False


class Began(Struct, frozen=True, tag="began"):
    """The child has taken the call: from here on the handler may have had effects."""


class Advanced(Struct, frozen=True, tag="advanced"):
    """The handler reported its progress."""

    progress: Progress


class Logged(Struct, frozen=True, tag="logged"):
    """A log record. `extra` holds its extra attributes that are plain data."""

    name: str
    level: int
    text: str
    created: float
    path: str
    line: int
    function: str
    extra: dict[str, str | int | float | bool | None]


class Returned(Struct, frozen=True, tag="returned"):
    """The handler's value, as JSON."""

    value: bytes


class Raised(Struct, frozen=True, tag="raised"):
    """An exception as data: its class by name, its text, its traceback, the names of its class and base classes."""

    type_name: str
    message: str
    traceback: str
    lineage: tuple[str, ...]


class RaisedRetry(Struct, frozen=True, tag="retry"):
    """The handler raised `Retry`."""

    after: float | None
    raised: Raised


class RaisedGiveUp(Struct, frozen=True, tag="give_up"):
    """The handler raised `GiveUp`."""

    reason: str
    raised: Raised


class NotCalled(Struct, frozen=True, tag="not_called"):
    """The handler was not called: by the time its code was loaded, the run was no longer allowed to begin."""


Result = Returned | Raised | RaisedRetry | RaisedGiveUp | NotCalled


class Ended(Struct, frozen=True, tag="ended"):
    """The call is over. `asked_to_stop`: it had been asked to stop before; `left`: it left processes behind."""

    result: Result
    asked_to_stop: bool = False
    left: bool = False


ToChild = Call | Signs
ToWorker = Began | Advanced | Logged | Ended

encode = msgpack.Encoder().encode
decode_for_child = msgpack.Decoder(ToChild).decode
decode_for_worker = msgpack.Decoder(ToWorker).decode
