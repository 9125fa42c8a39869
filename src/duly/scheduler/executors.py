"""The executors of a node, each made when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from duly.runtime.executors import Executor, InlineExecutor, ThreadExecutor
from duly.runtime.handler import ExecutorKind

if TYPE_CHECKING:
    from duly.runtime.executors import SupervisedProcesses


class Executors(Mapping[ExecutorKind, Executor]):
    """Looks like all of them, holds those that were needed. Processes and commands share one supervisor."""

    def __init__(self, max_result_bytes: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._made: dict[ExecutorKind, Executor] = {ExecutorKind.ASYNC: InlineExecutor()}
        self._processes: SupervisedProcesses | None = None

    def __getitem__(self, kind: ExecutorKind) -> Executor:
        executor = self._made.get(kind)
        if executor is None:
            executor = self._made[kind] = self._make(kind)
        return executor

    def _make(self, kind: ExecutorKind) -> Executor:
        from duly.runtime.executors import CommandExecutor, ProcessExecutor  # noqa: PLC0415  # few nodes need them

        match kind:
            case ExecutorKind.ASYNC:
                return InlineExecutor()
            case ExecutorKind.THREAD:
                return ThreadExecutor()
            case ExecutorKind.PROCESS:
                return ProcessExecutor(self._shared(), max_result_bytes=self._max_result_bytes)
            case ExecutorKind.COMMAND:
                return CommandExecutor(self._shared(), max_result_bytes=self._max_result_bytes)

    def _shared(self) -> SupervisedProcesses:
        if self._processes is None:
            from duly.runtime.executors import SupervisedProcesses  # noqa: PLC0415  # few nodes need it

            self._processes = SupervisedProcesses()
        return self._processes

    def __iter__(self) -> Iterator[ExecutorKind]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    async def close(self) -> None:
        """End what they have started."""
        for executor in self._made.values():
            await executor.close()
        if self._processes is not None:
            await self._processes.close()
