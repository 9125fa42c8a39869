"""Seats at an etcd for tests, and a line to it that can lose answers."""

import asyncio
import uuid
from contextlib import asynccontextmanager

from duly.backends.etcd import open_url
from duly.ports import Opening


def seat_at(url, namespace=None):
    return open_url(url, Opening(namespace=namespace or uuid.uuid4().hex))


class Line:
    """A port that passes everything on to a member, until it is told to lose an answer."""

    def __init__(self, port):
        self.url = f"etcd://127.0.0.1:{port}"
        self.lose = b""
        self.lost = 0

    def hears(self, data):
        """Whether the answer to this is to be lost."""
        return bool(self.lose) and self.lose in data


@asynccontextmanager
async def line_to(server):
    """A line to this member."""
    tasks = set()

    async def forward(reader, writer):
        tasks.add(asyncio.current_task())
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            while data := await reader.read(65536):
                while b"\r\n\r\n" in data and not _whole(data):
                    data += await reader.read(65536)
                loses = line.hears(data)
                behind_writer.write(data)
                answer = await behind_reader.read(65536)
                if loses:
                    line.lose, line.lost = b"", line.lost + 1
                    return
                writer.write(answer)
        except ConnectionError:
            pass  # one side has hung up
        finally:
            writer.transport.abort()
            behind_writer.transport.abort()

    front = await asyncio.start_server(forward, "127.0.0.1", 0)
    line = Line(front.sockets[0].getsockname()[1])
    async with front:
        yield line
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _whole(request):
    head, _, body = request.partition(b"\r\n\r\n")
    for row in head.split(b"\r\n"):
        name, _, value = row.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return True
