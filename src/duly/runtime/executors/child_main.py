"""Serving: how a child interpreter takes calls, runs handlers and answers.

One call at a time, on the main thread; there is no other thread but the handler's own. Messages from the worker are
read when the handler uses its context, or by the event loop of an async handler.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from inspect import isawaitable
from typing import Any, NoReturn

from duly.errors import DulyError, GiveUp, Retry
from duly.model import Progress, sanitize
from duly.model.current_run import current_run
from duly.runtime.context import Context
from duly.runtime.executors.channel import HEADER
from duly.runtime.executors.failures import lineage_of
from duly.runtime.executors.import_path import MAIN, load, resolve
from duly.runtime.executors.messages import (
    Advanced,
    Began,
    Call,
    Ended,
    Logged,
    NotCalled,
    Raised,
    RaisedGiveUp,
    RaisedRetry,
    Result,
    Returned,
    Signs,
    ToWorker,
    decode_for_child,
    encode,
)
from duly.runtime.failures import reason_of, traceback_of

_MAX_TEXT = 65536
_MAX_NAME = 500
_REPORTS_PER_SECOND = 50
_PLAIN = (str, int, float, bool, type(None))
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def serve(sock: socket.socket) -> None:
    """Answer calls until the worker closes the link."""
    faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a handler that is killed has no time to flush
    link = Link(sock)
    forward = Forward(link)
    logging.getLogger().addHandler(forward)
    while (call := link.next_call()) is not None:
        logging.getLogger().setLevel(call.level)
        _answer(link, call)
    logging.getLogger().removeHandler(forward)
    sock.close()


class Link:
    """The child's end of the channel. Any thread of the handler may use it."""

    def __init__(self, sock: socket.socket) -> None:
        self.fd = sock.fileno()
        self.signs = Signs()
        self._sock = sock
        self._inbox = bytearray()
        self._calls: list[Call] = []
        self._open = True
        self._owner = os.getpid()
        self._on_stop: Callable[[], object] | None = None
        self._sending = threading.Lock()
        self._receiving = threading.RLock()

    @property
    def ours(self) -> bool:
        """False in a process that the handler forked: the link belongs to its parent."""
        return os.getpid() == self._owner

    def next_call(self) -> Call | None:
        """Wait for the next call; None when the worker has closed the link."""
        while self._open and not self._calls:
            self._receive(0)
        return self._calls.pop() if self._calls else None

    def listen(self) -> None:
        """Process the messages that have arrived from the worker, without waiting."""
        if not self.ours:
            return
        with self._receiving, suppress(BlockingIOError):
            while self._open:
                self._receive(socket.MSG_DONTWAIT)

    def _receive(self, flags: int) -> None:
        try:
            data = self._sock.recv(65536, flags)
        except ConnectionError:
            data = b""
        self._inbox += data
        while (body := self._frame()) is not None:
            self._note(decode_for_child(body))
        if not data:
            self._open = False
            self._note(Signs(cancelled=True, owned=False, stop=True))

    def _frame(self) -> bytes | None:
        if len(self._inbox) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack_from(self._inbox)[0]
        if len(self._inbox) < end:
            return None
        body = bytes(self._inbox[HEADER.size : end])
        del self._inbox[:end]
        return body

    def _note(self, message: Call | Signs) -> None:
        if isinstance(message, Call):
            self._calls.append(message)
            self.signs = Signs()
            return
        self.signs = message
        if message.stop and self._on_stop is not None:
            self._on_stop()

    @contextmanager
    def on_stop(self, call: Callable[[], object]) -> Iterator[None]:
        """Call this when the worker asks to stop, for as long as the block lasts."""
        self._on_stop = call
        try:
            yield
        finally:
            self._on_stop = None

    def send(self, message: ToWorker) -> None:
        """Send a message to the worker; waits while the worker is slow."""
        body = encode(message)
        with self._sending:
            self._sock.sendall(HEADER.pack(len(body)) + body)

    def has_room(self) -> bool:
        """Whether a small message can be sent without waiting."""
        return bool(select.select([], [self._sock], [], 0)[1])


class Tie:
    """The tether of a context in this process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._over = False
        self._credit = float(_REPORTS_PER_SECOND)
        self._counted_at = time.monotonic()

    @property
    def cancelled(self) -> bool:
        self._link.listen()
        return self._link.signs.cancelled or self._link.signs.stop

    @property
    def owned(self) -> bool:
        self._link.listen()
        return self._link.signs.owned

    def report(self, progress: Progress) -> None:
        """Send only the latest value: a loop that reports every step neither floods the worker nor waits for it."""
        if not self._over and self._link.ours and self._affordable() and self._link.has_room():
            self._link.send(Advanced(progress))

    def keep(self, level: int, logger: str, text: str) -> None:
        """Send lines that the levels of logging discard; the worker keeps them in the run's log."""
        if not self._over and self._link.ours:
            record = logging.makeLogRecord({"name": logger, "levelno": level})
            self._link.send(_logged(record, sanitize.text(text, _MAX_TEXT)))

    def transaction(self) -> NoReturn:
        raise DulyError(
            "ctx.transaction() is not available in a process: the transaction belongs to the worker; "
            'use executor="thread", or an async handler'
        )

    def cut(self) -> None:
        """The handler has ended; what its threads still report is discarded."""
        self._over = True

    def _affordable(self) -> bool:
        now = time.monotonic()
        earned = (now - self._counted_at) * _REPORTS_PER_SECOND
        self._credit = min(_REPORTS_PER_SECOND, self._credit + earned)
        self._counted_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True


class Forward(logging.Handler):
    """Sends log records to the worker, whose loggers of the same names handle them."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        text = sanitize.text(self.format(record), _MAX_TEXT)
        if not self._link.ours:
            print(f"{record.levelname} {record.name}: {text}", file=sys.stderr)  # noqa: T201  # no link in a fork
            return
        try:
            self._link.send(_logged(record, text))
        except OSError:
            pass  # the worker is gone, and this process is about to end
        except Exception:  # noqa: BLE001  # logging's own rule: a record that cannot be sent is no failure
            self.handleError(record)


def _logged(record: logging.LogRecord, text: str) -> Logged:
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return Logged(
        name=record.name,
        level=record.levelno,
        text=text,
        created=record.created,
        path=record.pathname,
        line=record.lineno,
        function=record.funcName or "",
        extra={
            name: sanitize.text(value, _MAX_TEXT) if isinstance(value, str) else value
            for name, value in extra.items()
            if isinstance(value, _PLAIN)
        },
    )


def _answer(link: Link, call: Call) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # only the worker's message counts; SIGKILL follows anyway
    link.send(Began())
    result = _perform(link, call)
    if not link.ours:
        os._exit(0)  # the handler forked, and this is the fork: it must not answer too
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the handler may close or replace it
            stream.flush()
    link.listen()
    link.send(Ended(result, asked_to_stop=link.signs.stop, left=_has_children()))


def _perform(link: Link, call: Call) -> Result:
    tie = Tie(link)
    try:
        function, arguments = _loaded(call)
        if tie.cancelled or not tie.owned:  # loading may take long, and the machine may have slept meanwhile
            return NotCalled()
        value = _invoke(link, call, function, arguments, Context(call.run, tie))
    except BaseException as exc:  # noqa: BLE001  # whatever a handler raises is its outcome, SystemExit included
        return _describe(exc, call)
    finally:
        tie.cut()
    return _encode(value, call)


def _loaded(call: Call) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The handler and its arguments."""
    os.chdir(call.cwd)
    function = resolve(call.target)
    return function, load(call.binder)(function, call.run.payload)


def _invoke(link: Link, call: Call, function: Callable[..., Any], arguments: dict[str, Any], context: Context) -> Any:
    token = current_run.set(call.run)
    try:
        value = function(context, **arguments) if call.takes_context else function(**arguments)
        if not isawaitable(value):
            return value
        with asyncio.Runner() as runner:
            return runner.run(_attend(link, value))
    finally:
        current_run.reset(token)


async def _attend(link: Link, value: Awaitable[Any]) -> Any:
    """Await an async handler, and cancel it when the worker asks to stop."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    with link.on_stop(lambda: loop.call_soon_threadsafe(task.cancel)):
        loop.add_reader(link.fd, link.listen)
        if link.signs.stop:
            task.cancel()  # the request came while the module was being imported
        try:
            return await value
        finally:
            loop.remove_reader(link.fd)


def _encode(value: Any, call: Call) -> Result:
    try:
        encoded = load(call.encoder)(value)
    except Exception as exc:  # noqa: BLE001  # a value may fail to be encoded in as many ways as there are types
        return _no_result(f"the value that the handler returned cannot be kept: {sanitize.text_of(exc)}")
    if len(encoded) > call.max_result_bytes:
        return _no_result(f"the handler returned {len(encoded)} bytes, more than {call.max_result_bytes}")
    return Returned(encoded)


def _no_result(why: str) -> Raised:
    return Raised("ResultError", why, "", lineage_of("ResultError"))


def _describe(exc: BaseException, call: Call) -> Result:
    raised = Raised(
        type_name=sanitize.type_name_of(exc),
        message=sanitize.text_of(exc),
        traceback=sanitize.text(traceback_of(exc), _MAX_TEXT),
        lineage=tuple(_qualified(each, call) for each in type(exc).__mro__),
    )
    match exc:
        case Retry(after=None | int() | float() | timedelta() as after):
            return RaisedRetry(after.total_seconds() if isinstance(after, timedelta) else after, raised)
        case GiveUp():
            return RaisedGiveUp(reason_of(exc), raised)
    return raised


def _qualified(kind: type, call: Call) -> str:
    """The name by which the worker knows a class: its `__main__` module has another name in this process."""
    module = MAIN if call.target.main and kind.__module__ == call.target.module else kind.__module__
    return sanitize.text(f"{module}.{kind.__qualname__}", _MAX_NAME)


def _has_children() -> bool:
    """Whether this process has children, running or zombies, including orphaned descendants."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:  # a system without waitid has no such list
        return False
    return True
