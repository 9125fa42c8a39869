"""Runs `duly top`: keys, reads and drawing on one event loop. A slow store never delays a key."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import click
from msgspec.structs import replace

from duly.cli.actions import cancel_run, pause_job, pause_queue, redrive_run, resume_job, resume_queue, trigger_job
from duly.cli.client import address_of, ask
from duly.cli.full_screen import FullScreen, can_draw
from duly.cli.group import one_line
from duly.cli.text import full, line
from duly.cli.top import snapshot as snapshots
from duly.cli.top.keys import KeyDecoder
from duly.cli.top.screen import Frame, draw, page_of, wrapped
from duly.cli.top.view import Action, Kind, Text, View, press
from duly.errors import ConfigurationError, DulyError
from duly.model import CancelReply
from duly.rules.redaction import redacted
from duly.scheduler import Scheduler

_PERIOD = 1.0
_SHARE = 3.0  # the pause between two batches of reads is at least this many times as long as the first one took
_ESCAPE = 0.05  # after an escape without continuation it was the key


def run_top(url: str | None) -> None:
    """Show the live view until it is left."""
    if not (can_draw() and sys.stdin.isatty()):
        raise ConfigurationError(
            "duly top needs a terminal: use duly jobs, duly runs and duly nodes, with --watch or --json"
        )
    if sys.platform == "win32":
        raise ConfigurationError("duly top needs a POSIX terminal: use duly jobs --watch or duly runs --watch")
    store = redacted(address_of(url).store)
    colours = click.get_current_context().color is not False
    with FullScreen(keys=True) as screen, suppress(KeyboardInterrupt):
        ask(url, lambda scheduler: Top(scheduler, screen, store, colours=colours).run())


class Top:
    """The view, the latest snapshot, and the tasks that change them."""

    def __init__(self, scheduler: Scheduler, screen: FullScreen, store: str, *, colours: bool) -> None:
        self._scheduler = scheduler
        self._screen = screen
        self._colours = colours
        self._frame = Frame(store)
        self._view = View()
        self._keys = KeyDecoder()
        self._ended = asyncio.Event()
        self._read_now = asyncio.Event()
        self._actions: set[asyncio.Task[None]] = set()
        self._escape: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until the user quits."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._readable)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        reading = loop.create_task(self._read_for_ever(), name="duly-top")
        reading.add_done_callback(lambda _: self._ended.set())
        try:
            self._draw()
            await self._ended.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)
            await _stop(reading, *self._actions)

    # --- reads

    async def _read_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._read_now.clear()
            try:
                self._frame = replace(self._frame, snapshot=await snapshots.read(self._scheduler), trouble="")
            except DulyError as exc:
                self._frame = replace(self._frame, trouble=one_line(exc))
            self._draw()
            pause = max(_PERIOD, _SHARE * (loop.time() - began))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await self._read_now.wait()

    # --- keys

    def _readable(self) -> None:
        read = os.read(sys.stdin.fileno(), 1024)
        if not read:  # the terminal is gone
            self._ended.set()
            return
        self._press(self._keys.feed(read))
        if self._escape is not None:
            self._escape.cancel()
        if self._keys.waits:
            self._escape = asyncio.get_running_loop().call_later(_ESCAPE, lambda: self._press(self._keys.flush()))

    def _press(self, keys: list[str]) -> None:
        for key in keys:
            snapshot = self._frame.snapshot
            if snapshot is None:
                if key in {"q", "Q"}:
                    self._ended.set()
                continue
            step = press(self._view, key, snapshot, page_of(self._screen.size()))
            self._view = step.view
            if step.ends:
                self._ended.set()
            if step.action is not None:
                self._start(step.action)
        if keys:
            self._draw()

    def _draw(self) -> None:
        self._screen.draw(draw(self._view, self._frame, self._screen.size(), colours=self._colours))

    # --- actions

    def _start(self, action: Action) -> None:
        self._view = replace(self._view, message=f"{action.words} …")
        task = asyncio.get_running_loop().create_task(self._act(action))
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)

    async def _act(self, action: Action) -> None:
        try:
            if action.kind is Kind.EXPLAIN:
                text = await self._explained(action)
                self._view = replace(self._view, text=text, message="")
            else:
                self._view = replace(self._view, message=await self._done(action))
        except DulyError as exc:
            self._view = replace(self._view, message=one_line(exc))
        self._read_now.set()
        self._draw()

    async def _explained(self, action: Action) -> Text:
        item = action.item
        found = await self._scheduler.explain(item.run or item.job or "", None if item.run else item.due)
        title = f"{found.job} at {full(found.due or found.at)}: {found.verdict.replace('_', ' ')}"
        decided = [] if found.setting is None else [f"decided by: {line(found.setting)}"]
        lines = [*(line(reason) for reason in found.reasons), *decided]
        return Text(title, wrapped(lines, self._screen.size().columns))

    async def _done(self, action: Action) -> str:
        """Do something, and say what has been done."""
        scheduler, item, job = self._scheduler, action.item, action.item.job or ""
        match action.kind:
            case Kind.PAUSE | Kind.RESUME if item.queue is not None:
                change = pause_queue if action.kind is Kind.PAUSE else resume_queue
                await change(scheduler, item.queue)
                return f"queue {item.queue} is {action.kind}d"
            case Kind.PAUSE:
                await pause_job(scheduler, job)
            case Kind.RESUME:
                await resume_job(scheduler, job)
            case Kind.TRIGGER:
                return f"run {(await trigger_job(scheduler, job)).id} of {job} was submitted"
            case Kind.CANCEL:
                return await self._cancelled(item.run or "")
            case _:
                await redrive_run(scheduler, await scheduler.get_run(item.run or ""))
                return f"run {item.run} waits to be run again"
        return f"{job} is {action.kind}d"

    async def _cancelled(self, run_id: str) -> str:
        match await cancel_run(self._scheduler, await self._scheduler.get_run(run_id)):
            case CancelReply.DONE:
                return f"run {run_id} is cancelled"
            case CancelReply.REQUESTED:
                return f"run {run_id}: its worker has been asked to stop"
            case _:
                return f"run {run_id} had ended already"


async def _stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
