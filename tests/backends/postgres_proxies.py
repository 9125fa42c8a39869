"""What may stand before a PostgreSQL server: a port that speaks TLS, and a pooler that hands connections around.

Both are small servers of the wire protocol: a client begins with a request for TLS or with its startup message; after
that, every message is a letter and a length.
"""

import asyncio
import struct
from contextlib import asynccontextmanager

from forwarding import forward, server_context, serving

SSL_REQUEST = 80877103
CANCEL_REQUEST = 80877102


@asynccontextmanager
async def tls_in_front_of(port, certificate, authority=None):
    """A port that speaks TLS and passes everything on to the server; with `authority`, only for those it has signed."""
    context = server_context(certificate, authority)

    async def serve(reader, writer):
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.start_tls(context)
        await forward(reader, writer, port)

    async with serving(serve) as front:
        yield front


@asynccontextmanager
async def pooler_in_front_of(server, size=2):
    """A pooler in transaction mode: `size` connections to the server, each lent for one transaction at a time.

    It knows its clients by no password, gives them process ids of its own, and refuses startup options it cannot keep.
    """
    idle = asyncio.Queue()
    opened = []
    for _ in range(size):
        behind = await _Behind.connect(server)
        opened.append(behind)
        idle.put_nowait(behind)
    numbers = iter(range(1_000_000, 2_000_000))

    async def serve(reader, writer):
        await _greet(reader, writer, next(numbers), opened[0].greeting)
        listening = asyncio.create_task(_message(reader))
        while (message := await listening) is not None and message[:1] != b"X":
            behind = await idle.get()
            listening = await _transaction(message, reader, writer, behind)
            idle.put_nowait(behind)

    try:
        async with serving(serve) as front:
            yield front
    finally:
        for behind in opened:
            behind.writer.transport.abort()


class _Behind:
    """One connection of the pooler's own, and what the server says of itself: its version and settings."""

    def __init__(self, reader, writer, greeting):
        self.reader, self.writer, self.greeting = reader, writer, greeting

    @classmethod
    async def connect(cls, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        words = b"user\0duly\0database\0postgres\0application_name\0pooler\0\0"
        writer.write(struct.pack("!ii", 8 + len(words), 196608) + words)
        greeting = b""
        while (message := await _message(reader)) is not None:
            assert message[:1] != b"E", message
            if message[:1] == b"S":
                greeting += message
            if message[:1] == b"Z":
                return cls(reader, writer, greeting)
        raise ConnectionError("the server hung up on the pooler")


async def _greet(reader, writer, number, greeting):
    """Take any client in, and tell it what the server behind says of itself."""
    while True:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        rest = await reader.readexactly(length - 8)
        if code == SSL_REQUEST:
            writer.write(b"N")
            continue
        assert code == 196608, code
        options = dict(zip(*[iter(rest.split(b"\0"))] * 2, strict=False))
        assert set(options) <= {b"user", b"database", b"application_name", b"client_encoding", b""}, options
        break
    writer.write(_packed(b"R", struct.pack("!i", 0)) + greeting)
    writer.write(_packed(b"K", struct.pack("!ii", number, 0)) + _packed(b"Z", b"I"))


async def _transaction(message, reader, writer, behind):
    """Pass messages on, both ways at once, until the server is idle outside a transaction."""
    asked = 0
    done = asyncio.Event()

    async def answer():
        answered = 0
        while not done.is_set():
            said = await _message(behind.reader)
            assert said is not None
            writer.write(said)
            if said[:1] == b"Z":
                answered += 1
                if answered == asked and said[5:6] == b"I":
                    done.set()

    answering = asyncio.create_task(answer())
    while True:
        asked += message[:1] in {b"Q", b"S"}
        behind.writer.write(message)
        listening = asyncio.create_task(_message(reader))
        await asyncio.wait([listening, answering], return_when=asyncio.FIRST_COMPLETED)
        if done.is_set():
            await answering
            return listening
        message = await listening
        if message is None or message[:1] == b"X":
            message = _packed(b"Q", b"ROLLBACK\0")  # the client left in the middle
            asked += 1
            behind.writer.write(message)
            await answering
            return listening


async def _message(reader):
    try:
        head = await reader.readexactly(5)
        return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _packed(letter, body):
    return letter + struct.pack("!i", len(body) + 4) + body
