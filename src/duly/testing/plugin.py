"""The pytest plugin: one fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from duly.testing.harness import Harness


@pytest.fixture
def duly_harness() -> Iterator[Callable[..., Harness]]:
    """A maker of harnesses: call it with a scheduler and `now=…`; each is closed when the test ends."""
    from duly.testing.harness import Harness  # noqa: PLC0415  # a plugin is loaded with every run of pytest

    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Harness:
            return stack.enter_context(Harness(*arguments, **options))

        yield make
