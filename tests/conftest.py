"""What all tests share: where a scheduler keeps its data, and how to wait without sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path) -> str:
    """A fresh store of each kind that a scheduler can be tested on."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/duly.db"


async def eventually(check: Callable[[], Awaitable[object]], what: str = "", seconds: float = 30.0):
    """Wait until a condition holds and return what it returned; fail loudly if it never does."""
    deadline = time.monotonic() + seconds
    while True:
        value = await check()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"it never came true: {what or check}")
        await asyncio.sleep(0.005)
