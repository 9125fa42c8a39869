"""The wire: many calls on few connections, each answered or refused in time, and a bell that nobody stays deaf to."""

import asyncio
import os
import threading
from importlib.resources import files

import pytest
from redis_connections import new_namespace, operator, wired
from tests.conftest import eventually

from duly.backends.backoff import Backoff
from duly.backends.redis.backend import RedisBackend
from duly.backends.redis.pubsub import MISSED
from duly.backends.redis.scripts import scripts
from duly.backends.redis.settings import parse
from duly.errors import BackendError, BackendUnavailable
from duly.testing.servers import redis_server as start_redis


@pytest.fixture
def server():
    with start_redis() as server:
        yield server


def _connections(server, kind="normal") -> int:
    """How many of our connections the server has."""
    with operator(server) as client:
        return sum(1 for each in client.client_list(_type=kind) if each["name"] == "duly")


# --- calls


async def test_a_script_gets_the_prefix_and_the_arguments(redis_url):
    async with wired(redis_url) as wire:
        assert await wire.call("echo", "a", b"\x00\xff", 3, 2.5) == [b"a", b"\x00\xff", b"3", b"2.5"]
        await wire.call("write", "key", "value")
        assert await wire.command("GET", f"duly:{{{wire.namespace}}}:key") == b"value"


async def test_many_calls_share_a_connection_and_find_their_answers(server):
    async with wired(server.url) as wire:
        answers = await asyncio.gather(*(wire.call("echo", number) for number in range(1000)))
        assert answers == [[str(number).encode()] for number in range(1000)]
        assert _connections(server) == 1


async def test_named_connections_are_separate(server):
    async with wired(server.url) as wire:
        await asyncio.gather(
            *(wire.call("echo", 1, connection=name) for name in ("main", "claim", "settle") for _ in range(9))
        )
        assert _connections(server) == 3


async def test_calls_are_sent_without_waiting_for_the_answers_before(server):
    async with wired(server.url) as wire:
        await wire.call("echo", "once, to be known")
        server.pause()
        calls = [asyncio.ensure_future(wire.call("echo", number)) for number in range(100)]
        await asyncio.sleep(0)
        server.resume()
        assert await asyncio.gather(*calls) == [[str(number).encode()] for number in range(100)]
        with operator(server) as client:
            assert client.info("stats")["total_reads_processed"] < 50  # they came in a few packets


async def test_large_arguments_and_answers(server):
    async with wired(server.url) as wire:
        large = os.urandom(3_000_000)
        server.pause()
        calls = [asyncio.ensure_future(wire.call("echo", large, number)) for number in range(8)]

        async def full():
            return wire._connections["main"].current._writable is not None

        await eventually(full)
        server.resume()
        assert await asyncio.gather(*calls) == [[large, str(number).encode()] for number in range(8)]


async def test_a_forgotten_script_is_taught_again(redis_url, server):
    async with wired(server.url) as wire:
        await wire.call("echo", 1)
        await wire.command("SCRIPT", "FLUSH")
        assert await asyncio.gather(*(wire.call("echo", number) for number in range(5)))
        assert await wire.call("read", "nothing") is None


async def test_the_server_is_taught_no_more_than_it_is_asked_for(server):
    """Each script makes the server's collector of Lua's garbage slower, for all of them."""
    async with RedisBackend(parse(server.url), new_namespace()) as backend:
        await backend.queue.promote(1)
        memory = await backend.client.command("INFO", "memory")
    [known] = [line for line in memory.decode().splitlines() if line.startswith("number_of_cached_scripts:")]
    assert known == "number_of_cached_scripts:2"  # hello, promote


async def test_an_error_of_a_script_names_it_and_is_final(redis_url):
    async with wired(redis_url) as wire:
        with pytest.raises(BackendError, match="broken") as refused:
            await wire.call("broken")
        assert not isinstance(refused.value, BackendUnavailable)
        assert await wire.call("echo", "goes on") == [b"goes on"]


async def test_a_cancelled_call_leaves_the_others_their_answers(server):
    async with wired(server.url) as wire:
        server.pause()
        calls = [asyncio.ensure_future(wire.call("echo", number)) for number in range(10)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        server.resume()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [answers[number] for number in range(1, 10, 2)] == [[str(number).encode()] for number in range(1, 10, 2)]
        assert await wire.call("echo", "next") == [b"next"]


def test_every_script_is_understood(redis_url):
    async def load():
        async with RedisBackend(parse(redis_url), new_namespace()) as backend:
            for script in scripts().values():
                assert await backend.client.command("SCRIPT", "LOAD", script.text) == script.sha

    asyncio.run(load())


def test_a_script_has_the_parts_it_names_each_once_and_theirs_before():
    text = scripts()["lease_release"].text.decode()
    parts = [
        "local function now_or(",
        "local function last_fence(",
        "local function lease_of(",
        "local function notify(",
    ]
    assert [text.count(part) for part in parts] == [1, 1, 1, 1]
    assert text.index(parts[0]) < text.index(parts[2])
    assert text.index(parts[1]) < text.index(parts[2])


def test_every_script_begins_with_its_contract():
    folder = files("duly.backends.redis") / "scripts"
    for script in folder.iterdir():
        if script.name.endswith(".lua"):
            lines = [line for line in script.read_text().splitlines() if not line.startswith("--! use ")]
            assert lines[0].startswith("--"), script.name


# --- deadlines and reconnecting


async def test_a_paused_server_is_unavailable_after_the_deadline_and_back_when_it_goes_on(server):
    async with wired(f"{server.url}?timeout=0.2") as wire:
        server.pause()
        with pytest.raises(BackendUnavailable, match="no answer"):
            await wire.call("echo", 1)
        with pytest.raises(BackendUnavailable):  # a new connection is accepted by the kernel, and not answered either
            await wire.call("echo", 2)
        server.resume()

        async def answered():
            try:
                return await wire.call("echo", 3)
            except BackendUnavailable:
                return None

        assert await eventually(answered) == [b"3"]


async def test_all_calls_of_a_dropped_connection_are_told(server):
    async with wired(f"{server.url}?timeout=0.2") as wire:
        server.pause()
        calls = await asyncio.gather(*(wire.call("echo", number) for number in range(5)), return_exceptions=True)
        assert all(isinstance(call, BackendUnavailable) for call in calls)
        assert len({id(call) for call in calls}) == 5
        server.resume()


async def test_a_server_killed_in_the_middle_of_a_call(server):
    async with wired(server.url) as wire:
        server.pause()
        call = asyncio.ensure_future(wire.call("echo", 1))
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await call
        server.start()
        with pytest.raises(BackendUnavailable, match="forgotten everything"):
            await wire.call("echo", 2)
        assert await wire.call("echo", 3) == [b"3"]


async def test_an_idle_connection_that_was_closed_is_replaced_unnoticed(server):
    async with wired(server.url) as wire:
        with operator(server) as client:
            client.client_kill_filter(_type="normal", skipme=True)

        async def gone():
            return wire._connections["main"].current is None

        await eventually(gone)
        assert await wire.call("echo", 1) == [b"1"]


async def test_somebody_who_speaks_another_language_is_unavailable():
    async def babble(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    stranger = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with stranger:
        port = stranger.sockets[0].getsockname()[1]
        with pytest.raises(BackendUnavailable):
            async with wired(f"redis://127.0.0.1:{port}"):
                pass


async def test_somebody_who_never_answers_is_unavailable_after_the_deadline():
    silence = asyncio.Event()

    async def listen(reader, writer):
        await silence.wait()
        writer.close()

    stranger = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with stranger:
        port = stranger.sockets[0].getsockname()[1]
        with pytest.raises(BackendUnavailable, match=r"0\.1 s"):
            async with wired(f"redis://127.0.0.1:{port}?timeout=0.1"):
                pass
        silence.set()


async def test_after_a_failure_nobody_knocks_for_a_while():
    why = BackendUnavailable("away")
    gate = Backoff(dice=lambda: 1.0)
    gate.check()
    pauses = []
    for _ in range(10):
        gate.failed(why)
        pauses.append(gate.closed_for)
    assert pauses[:5] == sorted(pauses[:5])
    assert pauses[0] <= 0.02
    assert 0.9 < pauses[-1] <= 1.0
    with pytest.raises(BackendUnavailable, match="away"):
        gate.check()
    gate.passed()
    gate.check()
    unlucky, lucky = Backoff(dice=lambda: 1.0), Backoff(dice=lambda: 0.0)
    for each in (unlucky, lucky):
        each.failed(why)
    assert lucky.closed_for < unlucky.closed_for  # two nodes do not knock in step


# --- loops, processes, closing


async def test_a_wire_is_for_one_loop_and_a_session_for_another(redis_url):
    async with RedisBackend(parse(redis_url), new_namespace()) as backend:

        async def elsewhere():
            with pytest.raises(BackendError, match="another event loop"):
                await backend.coordinator.get("key")
            async with backend.session() as session:
                return await session.coordinator.put("key", b"value")

        put = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert await backend.coordinator.get("key") == put


async def test_several_loops_at_once(redis_url):
    namespace = new_namespace()
    barrier = threading.Barrier(3, timeout=60)

    async def work(number):
        async with wired(redis_url, namespace) as wire:
            barrier.wait()
            return await asyncio.gather(*(wire.call("echo", number, each) for each in range(100)))

    each = await asyncio.gather(*(asyncio.to_thread(lambda n=number: asyncio.run(work(n))) for number in range(3)))
    for number, answers in enumerate(each):
        assert answers == [[str(number).encode(), str(each).encode()] for each in range(100)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_forked_child_refuses_until_it_opens_its_own(redis_url):
    async with wired(redis_url) as wire:
        await wire.call("write", "key", "parent")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, _in_child(wire).encode())
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        told = os.read(reading, 10_000).decode()
        os.close(reading)
        os.close(writing)
        assert "forked" in told
        assert "parent" in told
        assert await wire.call("read", "key") == b"parent"


def _in_child(wire) -> str:
    try:
        wire.call("read", "key").send(None)
    except BackendError as refusal:
        told = str(refusal)

    async def anew():
        await wire.open()
        try:
            return (await wire.call("read", "key")).decode()
        finally:
            await wire.close()

    asyncio.events._set_running_loop(None)  # the copy of the loop that the fork has made does not run here
    asyncio.set_event_loop_policy(None)
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(asyncio.run(anew())))
    thread.start()
    thread.join()
    return f"{told} {read}"


async def test_a_closed_wire_refuses_and_opens_again(redis_url):
    async with wired(redis_url) as wire:
        await wire.close()
        await wire.close()
        with pytest.raises(BackendError, match="not open"):
            await wire.call("echo", 1)
        await wire.open()
        await wire.open()
        assert await wire.call("echo", 2) == [b"2"]


async def test_closing_tells_those_who_wait(server):
    async with wired(server.url) as wire:
        async with wire.listen("door") as ear:
            await ear.wait(0)
            server.pause()
            waiting = asyncio.ensure_future(ear.wait(60))
            asking = asyncio.ensure_future(wire.call("echo", 1))
            await asyncio.sleep(0)
            await wire.close()
            with pytest.raises(BackendError, match="closed"):
                await waiting
            with pytest.raises(BackendUnavailable, match="closed"):
                await asking
        server.resume()


# --- the bell


async def test_a_ring_reaches_other_sessions(redis_url):
    async with wired(redis_url) as one, wired(redis_url, one.namespace) as other, one.listen("door") as ear:
        await ear.wait(0)
        waiting = asyncio.ensure_future(ear.wait(60))
        await other.call("ring", "door", "knock")
        assert await waiting == [b"knock"]
        assert await ear.wait(0) == []


async def test_what_is_said_between_two_waits_is_heard(redis_url):
    async with wired(redis_url) as wire, wire.listen("door") as ear:
        await ear.wait(0)
        for number in range(3):
            await wire.call("ring", "door", number)
        heard = []
        while len(heard) < 3:
            heard += await ear.wait(60)
        assert heard == [b"0", b"1", b"2"]


async def test_too_much_to_remember_is_remembered_as_many(redis_url):
    async with wired(redis_url) as wire, wire.listen("door") as ear:
        await ear.wait(0)
        await asyncio.gather(*(wire.call("ring", "door", number) for number in range(1500)))

        async def all_rung():
            return ear._messages[-1:] == [b"1499"]

        await eventually(all_rung)
        heard = await ear.wait(0)
        assert len(heard) <= 1_000
        assert heard[0] == MISSED


async def test_namespaces_do_not_hear_each_other(redis_url):
    async with wired(redis_url) as one, wired(redis_url) as other, one.listen("door") as ear:
        await ear.wait(0)
        await other.call("ring", "door", "not for you")
        await one.call("ring", "door", "for you")
        assert await ear.wait(60) == [b"for you"]


async def test_there_is_one_listening_connection_and_only_when_somebody_listens(server):
    async with wired(server.url) as wire:
        assert _connections(server, "pubsub") == 0
        async with wire.listen("a"), wire.listen("a", "b"), wire.listen("c"):
            assert _connections(server, "pubsub") == 1
            with operator(server) as client:
                assert len(client.pubsub_channels()) == 3
        async with wire.listen("c"):
            with operator(server) as client:
                assert [name.rpartition(b":")[2] for name in client.pubsub_channels()] == [b"c"]


async def test_a_sleeper_wakes_when_the_connection_is_back_and_hears_again(server):
    async with wired(server.url) as wire, wire.listen("door") as ear:
        await ear.wait(0)
        waiting = asyncio.ensure_future(ear.wait(60))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.restart)
        assert await waiting == [MISSED]
        with operator(server) as client:
            client.publish(wire.prefix + b"door", "knock")
        assert await ear.wait(60) == [b"knock"]


async def test_a_wait_ends_in_time_while_the_server_is_away(server):
    async with wired(server.url) as wire, wire.listen("door") as ear:
        await ear.wait(0)
        server.kill()
        assert await ear.wait(0.2) == []


async def test_a_dead_connection_is_noticed_though_nothing_is_said(server):
    async with wired(f"{server.url}?timeout=0.1") as wire, wire.listen("door") as ear:
        await ear.wait(0)
        server.pause()

        async def noticed():
            await ear.wait(0)
            return wire._pubsub.disconnected

        await eventually(noticed)
        waiting = asyncio.ensure_future(ear.wait(60))
        server.resume()
        assert await waiting == [MISSED]


async def test_an_ear_cannot_be_opened_while_the_server_is_away(server):
    async with wired(server.url) as wire:
        server.kill()
        with pytest.raises(BackendUnavailable):
            async with wire.listen("door"):
                pass
        assert wire._pubsub._listeners == {}
