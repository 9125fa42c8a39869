"""The pytest plugin: one fixture; async tests that use it or test a backend need no other plugin."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from duly.testing.harness import Harness

_SUITES = "duly.testing.conformance"


@pytest.fixture
def duly_harness() -> Iterator[Callable[..., Harness]]:
    """A maker of harnesses: call it with a scheduler and `now=…`; each is closed when the test ends."""
    from duly.testing.harness import Harness  # noqa: PLC0415  # a plugin is loaded with every run of pytest

    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Harness:
            return stack.enter_context(Harness(*arguments, **options))

        yield make


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in its own event loop, if it has to do with Duly and no other plugin has taken it.

    Plugins for async tests come first: they replace the function, or claim the call by a marker.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or not _is_ours(pyfuncitem):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted if name in pyfuncitem.funcargs}))
    return True


def _is_ours(test: pytest.Function) -> bool:
    suites = [base for base in (test.cls.__mro__ if test.cls else ()) if base.__module__.startswith(_SUITES)]
    return bool(suites) or duly_harness.__name__ in test.fixturenames
