"""The executors of a node, each made when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duly.runtime.executors import (
    CommandExecutor,
    Executor,
    InlineExecutor,
    ProcessExecutor,
    ThreadExecutor,
)
from duly.runtime.handler import ExecutorKind


class Executors(Mapping[ExecutorKind, Executor]):
    """Looks like all of them, holds those that were needed."""

    def __init__(self, max_result_bytes: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._made: dict[ExecutorKind, Executor] = {ExecutorKind.ASYNC: InlineExecutor()}

    def __getitem__(self, kind: ExecutorKind) -> Executor:
        executor = self._made.get(kind)
        if executor is None:
            executor = self._made[kind] = self._make(kind)
        return executor

    def _make(self, kind: ExecutorKind) -> Executor:
        match kind:
            case ExecutorKind.ASYNC:
                return InlineExecutor()
            case ExecutorKind.THREAD:
                return ThreadExecutor()
            case ExecutorKind.PROCESS:
                return ProcessExecutor()
            case ExecutorKind.COMMAND:
                return CommandExecutor(max_result_bytes=self._max_result_bytes)

    def __iter__(self) -> Iterator[ExecutorKind]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
