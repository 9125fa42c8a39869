"""Small servers that forward connections, for tests that put something between a client and a server."""

import asyncio
import ssl
from contextlib import asynccontextmanager


def server_context(certificate, authority=None):
    """TLS with this certificate; with `authority`, only for clients whose certificate it has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    if authority is not None:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@asynccontextmanager
async def serving(serve, context=None):
    """A port on which every connection is passed to `serve(reader, writer)`."""
    tasks = set()

    async def handle(reader, writer):
        tasks.add(asyncio.current_task())
        try:
            await serve(reader, writer)
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # a client that hangs up, or rejects our certificate
        except asyncio.CancelledError:
            pass  # the end of the test; asyncio's streams complain about a cancelled handler
        finally:
            writer.transport.abort()

    front = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with front:
        yield front.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def forward(reader, writer, port):
    """Connect to a port of this machine and pass bytes in both directions until both sides have hung up."""
    behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(reader, behind_writer))
            group.create_task(_pump(behind_reader, writer))
    finally:
        behind_writer.transport.abort()


async def _pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass  # one side has hung up
    finally:
        writer.close()
