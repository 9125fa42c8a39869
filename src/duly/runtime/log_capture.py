"""Keeps what handlers log: every log record that is made while a run executes, in its task or thread.

A record is taken where it is made. So no handler is added to any logger: `logging.basicConfig` works as before, and
warnings of a program that has not configured logging still appear. Records that the levels discard are never made;
`Context.log` keeps its own from INFO on in any case. Duly's own records are left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from duly.model import LineSource, Run
from duly.model.current_run import current_run
from duly.runtime.active_runs import ActiveRuns
from duly.runtime.failures import traceback_of
from duly.runtime.log_text import is_users, message_of

Make = Callable[..., logging.LogRecord]

_PROBE = "duly.log_capture.probe"

_nodes: tuple[ActiveRuns, ...] = ()  # replaced, never changed: other threads read it
_before: Make = logging.LogRecord
_reached = False  # by a probe
_changing = threading.Lock()


def attach(active_runs: ActiveRuns) -> None:
    """Keep what the handlers of this node log."""
    global _nodes, _before
    with _changing:
        _nodes = (*_nodes, active_runs)
        if not _is_called():
            _before = logging.getLogRecordFactory()
            logging.setLogRecordFactory(_make)


def detach(active_runs: ActiveRuns) -> None:
    """The node has ended."""
    global _nodes
    with _changing:
        _nodes = tuple(each for each in _nodes if each is not active_runs)
        if not _nodes and logging.getLogRecordFactory() is _make:
            logging.setLogRecordFactory(_before)


def _is_called() -> bool:
    """Whether the present factory calls ours, directly or through others: two in a circle would never return."""
    global _reached
    _reached = False
    logging.getLogRecordFactory()(_PROBE, logging.DEBUG, __file__, 0, "", (), None)
    return _reached


def _make(*args: Any, **kwargs: Any) -> logging.LogRecord:
    global _reached
    record = _before(*args, **kwargs)
    _reached = _reached or record.name == _PROBE
    run = current_run.get()
    if run is not None and _nodes and is_users(record.name):
        try:
            _keep(run, record.levelno, record.name, _whole_text(record))
        except Exception:  # noqa: BLE001  # a record that cannot be kept must not fail the code that logs
            _keep(run, logging.WARNING, __name__, "a log record could not be kept")
    return record


def _keep(run: Run, level: int, logger: str, text: str) -> None:
    for node in _nodes:
        if (active := node.find(run)) is not None:
            active.write(LineSource.LOG, text, logging.getLevelName(level), logger)


def _whole_text(record: logging.LogRecord) -> str:
    text = message_of(record.msg, record.args)
    if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
        text = f"{text}\n{traceback_of(record.exc_info[1]).rstrip()}"
    return f"{text}\n{record.stack_info}" if record.stack_info else text
