"""Fixtures of the API's tests."""

import pytest
from tests.api.api_support import caller_for, shop
from tests.api.process_support import APP, Process, make_token


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


@pytest.fixture
def start(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    started = []

    def start(*arguments, **environment) -> Process:
        started.append(Process(*arguments, folder=tmp_path, **environment))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
        process.process.communicate()


@pytest.fixture
def token(tmp_path):
    """A token in the store that the processes use."""
    return make_token(tmp_path)
