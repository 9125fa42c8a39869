"""Fixtures of the API's tests."""

import pytest
from tests.api.api_support import caller_for, shop


@pytest.fixture
async def scheduler(url):
    """A scheduler as a client of a fresh store of each kind: nothing runs unless a test starts it."""
    scheduler = shop(url)
    async with scheduler.client():
        yield scheduler


@pytest.fixture
async def admin(scheduler):
    return await caller_for(scheduler)


@pytest.fixture
async def memory():
    """The same on memory alone, for what has nothing to do with the store."""
    scheduler = shop("memory://")
    async with scheduler.client():
        yield scheduler


@pytest.fixture
async def caller(memory):
    return await caller_for(memory)
