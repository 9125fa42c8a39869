"""Transactions of handlers: the user's effects and the run's completion commit together.

One block per attempt. In async handlers it is an async context manager; in threads an ordinary one, whose statements
are carried to the event loop one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context, ContextVar, Token, copy_context
from types import TracebackType
from typing import Any, Protocol

from msgspec import Struct

from duly.errors import DulyError
from duly.model import Delivery, Put, Run
from duly.ports import Transaction, TransactionStore
from duly.ports.waiting import noticed
from duly.runtime.active_runs import ActiveRun

_inside: ContextVar[bool] = ContextVar("duly_inside_transaction", default=False)


def inside_transaction() -> bool:
    """Whether the running code is in a handler's transaction: its other writes must not wait behind those of others."""
    return _inside.get()


class Compose(Protocol):
    """Makes the run of a submission, checked like any other, without storing it."""

    def __call__(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> Run: ...


class Transactions:
    """Opens the transactions of a node's attempts."""

    def __init__(self, store: TransactionStore, compose: Compose, timeout: Callable[[], float]) -> None:
        self._store = store
        self._compose = compose
        self._timeout = timeout

    def open(self, active: ActiveRun) -> HandlerTransaction:
        """The one block of this attempt."""
        run = active.claim.run
        if run.policy.delivery is not Delivery.EXACTLY_ONCE:
            raise DulyError(
                f"ctx.transaction() needs delivery='exactly_once'; job {run.job!r} is {run.policy.delivery}"
            )
        if active.committed:
            raise DulyError(f"run {run.id} of {run.job!r} has committed already: one ctx.transaction() per attempt")
        return HandlerTransaction(
            active, lambda: self._store.transaction(active.claim, timeout=self._timeout()), self._compose
        )


class HandlerTransaction:
    """`async with ctx.transaction() as tx`, or `with` in a thread."""

    def __init__(self, active: ActiveRun, begin: Callable[[], Any], compose: Compose) -> None:
        self._live = active
        self._begin = begin
        self._compose = compose
        self._block: Any = None
        self._errand: _Errand | None = None

    async def __aenter__(self) -> TransactionHandle:
        block = self._begin()
        handle = TransactionHandle(await block.__aenter__(), self._compose)
        self._block = block
        _inside.set(True)
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        _inside.set(False)
        if kind is not None:
            swallowed: bool | None = await self._block.__aexit__(kind, exc, trace)
            return swallowed
        committed = False
        self._live.committing = True
        try:
            await self._block.__aexit__(None, None, None)
            committed = True
        finally:
            self._live.commit_known(committed=committed)
        return None

    def __enter__(self) -> SyncTransactionHandle:
        task = self._live.task
        if task is None:
            raise DulyError("ctx.transaction() outside of a running attempt")
        self._errand = _Errand(task.get_loop(), self)
        self._errand.start()
        return SyncTransactionHandle(self._errand)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._errand is not None
        self._errand.finish(exc)


class TransactionHandle:
    """What a handler does inside its transaction."""

    def __init__(self, transaction: Transaction, compose: Compose) -> None:
        self._transaction = transaction
        self._compose = compose

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return await self._transaction.execute(sql, parameters)

    async def submit(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> Put:
        """Submit a run that exists only if this transaction commits. Takes what `scheduler.submit` takes."""
        [put] = await self._transaction.put([self._compose(handler, payload, **options)])
        return put


class SyncTransactionHandle:
    """The same for handlers in threads."""

    def __init__(self, errand: _Errand) -> None:
        self._errand = errand

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        rows: list[tuple[Any, ...]] = self._errand.ask(lambda handle: handle.execute(sql, parameters))
        return rows

    def submit(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> Put:
        """Submit a run that exists only if this transaction commits."""
        put: Put = self._errand.ask(lambda handle: handle.submit(handler, payload, **options))
        return put


_Question = tuple[Callable[[TransactionHandle], Any], "asyncio.Future[Any]"]


class _Leave(Struct, frozen=True):
    """The thread leaves the block."""

    commit: bool


class _RolledBack(Exception):
    """The thread left the block by an exception. The exception stays in its thread: SystemExit would end the loop."""


class _Errand:
    """One task on the loop that holds the block open for a thread: a block must begin and end in the same task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, block: HandlerTransaction) -> None:
        self._loop = loop
        self._block = block
        self._questions: asyncio.Queue[_Question | _Leave] = asyncio.Queue()
        self._done: Future[None] = Future()
        self._tokens: list[Token[Any]] = []

    # --- on the loop

    async def _serve(self, opened: Future[Context]) -> None:
        try:
            async with self._block as handle:
                opened.set_result(copy_context())
                await self._answer_all(handle)
        except BaseException as exc:
            if not opened.done():
                opened.set_exception(exc)
            raise

    async def _answer_all(self, handle: TransactionHandle) -> None:
        while not isinstance(question := await self._questions.get(), _Leave):
            await _answer(handle, question)
        if not question.commit:
            raise _RolledBack

    # --- in the thread

    def start(self) -> None:
        """Return when the block is open."""
        opened: Future[Context] = Future()
        self._done = asyncio.run_coroutine_threadsafe(self._serve(opened), self._loop)
        self._tokens = _adopt(opened.result())

    def ask(self, ask: Callable[[TransactionHandle], Any]) -> Any:
        async def asked() -> Any:
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._questions.put_nowait((ask, answer))
            over = asyncio.wrap_future(self._done)
            over.add_done_callback(noticed)  # `finish` raises the exception that ended the block
            await asyncio.wait([answer, over], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise self._done.exception() or DulyError("this transaction is over: use it inside its `with` block")
            return answer.result()

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def finish(self, exc: BaseException | None) -> None:
        """Leave the block; return when it has committed, or has been rolled back for that exception."""
        for token in reversed(self._tokens):
            token.var.reset(token)
        self._loop.call_soon_threadsafe(self._questions.put_nowait, _Leave(commit=exc is None))
        try:
            self._done.result()
        except (_RolledBack, TimeoutError):
            if exc is None:
                raise


def _adopt(context: Context) -> list[Token[Any]]:
    """Copy the block's context variables to this thread: what the store refuses inside a block, it must refuse here."""
    here = copy_context()
    return [variable.set(value) for variable, value in context.items() if here.get(variable) is not value]


async def _answer(handle: TransactionHandle, question: _Question) -> None:
    ask, answer = question
    try:
        value = await ask(handle)
    except Exception as exc:  # noqa: BLE001  # the statement's failure is the handler's to see
        if not answer.done():
            answer.set_exception(exc)
    else:
        if not answer.done():
            answer.set_result(value)
