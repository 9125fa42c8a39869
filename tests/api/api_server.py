"""A real server in a thread: the API of a shop on a random loopback port."""

import asyncio
import threading
from contextlib import contextmanager

from tests.api.api_support import new_token, shop

from duly.api import Api, ApiSettings
from duly.api.addresses import bind, bound_to, parse
from duly.api.config import ConnectionLimits
from duly.api.server import Serving, listening


@contextmanager
def served(url: str, *, connections=None, settings=None, tls=(None, None), node=False, run=asyncio.run, **config):
    """The port of a server on this store, beside a node or alone, and an admin's token. `run` makes the event loop."""
    ready = threading.Event()
    found = {}

    async def serve():
        scheduler = shop(url, **config)
        async with scheduler if node else scheduler.client():
            sockets = bind(parse("127.0.0.1:0"))
            limits = connections or ConnectionLimits()
            address = bound_to(parse("127.0.0.1:0"), sockets)
            serving = Serving(address, connections=limits, tls_cert=tls[0], tls_key=tls[1])
            async with listening(Api(scheduler, settings or ApiSettings()), serving, sockets):
                found["port"] = serving.address.port
                found["token"] = await new_token(scheduler, "admin")
                found["loop"], found["stop"] = asyncio.get_running_loop(), asyncio.Event()
                ready.set()
                await found["stop"].wait()

    thread = threading.Thread(target=run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30), "the server did not start"
    try:
        yield found["port"], found["token"]
    finally:
        found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(30)
