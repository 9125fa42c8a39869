"""The executors of a node, each made when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from duly.errors import ConfigurationError, shown
from duly.model import is_job_name
from duly.runtime.executors import BuiltinExecutor, InlineExecutor, ThreadExecutor
from duly.runtime.executors.custom import CustomExecutor, Executor
from duly.runtime.handler import ExecutorKind

if TYPE_CHECKING:
    from duly.runtime.executors import SupervisedProcesses


def checked_executors(given: Mapping[str, Executor] | None) -> dict[str, Executor]:
    """Check the user's executors and return them by name."""
    executors = dict(given or {})
    for name, executor in executors.items():
        if not is_job_name(name) or name in tuple(ExecutorKind):
            builtin = ", ".join(ExecutorKind)
            raise ConfigurationError(
                f"executors: {shown(name)}: expected a name of letters, digits and _ . - other than {builtin}"
            )
        if not callable(getattr(executor, "execute", None)):
            raise ConfigurationError(
                f"executors: {name!r} is {shown(executor)}: expected an object with execute(call), see duly.Executor"
            )
    return executors


class Executors(Mapping[str, BuiltinExecutor]):
    """A mapping of all executors that creates them on first use. Processes and commands share one supervisor."""

    def __init__(self, max_result_bytes: int, own: Mapping[str, Executor]) -> None:
        self._max_result_bytes = max_result_bytes
        self._made: dict[str, BuiltinExecutor] = {ExecutorKind.ASYNC: InlineExecutor()}
        self._made |= {name: CustomExecutor(executor) for name, executor in own.items()}
        self._processes: SupervisedProcesses | None = None

    def __getitem__(self, name: str) -> BuiltinExecutor:
        executor = self._made.get(name)
        if executor is None:
            executor = self._made[name] = self._make(ExecutorKind(name))
        return executor

    def _make(self, kind: ExecutorKind) -> BuiltinExecutor:
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

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    async def close(self) -> None:
        """End what they have started."""
        for executor in self._made.values():
            await executor.close()
        if self._processes is not None:
            await self._processes.close()
