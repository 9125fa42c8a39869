"""Members that die, hang and come back; certificates and logins that are good or not."""

import asyncio

import pytest
import trustme
from etcd_sessions import seat_at
from tests.conftest import eventually

from duly.errors import BackendError, BackendUnavailable
from duly.ports import Severity
from duly.testing.etcd_servers import Files, etcd_cluster, etcd_server, url_of

TTL = 30.0
SECRET = "s3cr3t"


@pytest.fixture
def trio():
    with etcd_cluster(3) as servers:
        yield servers


def _by_host(servers, seat):
    """The member that the seat talks to."""
    host = seat._gateway._members[0].host
    return next(server for server in servers if server.host == host)


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_another_member_answers_when_one_is_killed_or_hangs(trio, fault):
    async with seat_at(url_of(trio, {"timeout": "10"})) as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        await seat.coordinator.put("config", b"1")
        watch = seat.coordinator.watch("config")
        assert (await anext(watch)).value == b"1"
        later = asyncio.ensure_future(anext(watch))
        gone = _by_host(trio, seat)
        getattr(gone, fault)()
        [renewed] = await _insisting(lambda: seat.coordinator.renew([lease], TTL))
        assert renewed.fence == lease.fence
        assert _by_host(trio, seat) is not gone
        await _insisting(lambda: seat.coordinator.put("config", b"2"))
        assert (await asyncio.wait_for(later, 60)).value == b"2"
        await watch.aclose()


async def _insisting(ask):
    """Do as a service does: ask again while it cannot be reached."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except BackendUnavailable:
                await asyncio.sleep(0.02)


async def test_a_cluster_without_a_majority_is_unavailable_and_loses_nothing(trio):
    async with seat_at(url_of(trio, {"timeout": "1"})) as seat:
        lease = await seat.coordinator.acquire("leader", "a", 600)
        for server in trio[:2]:
            server.kill()
        with pytest.raises(BackendUnavailable):
            await seat.coordinator.renew([lease], 600)
        trio[0].launch([server.peer for server in trio])
        [renewed] = await _insisting(lambda: seat.coordinator.renew([lease], 600))
        assert renewed.fence == lease.fence


async def test_nobody_there_is_said_with_the_members_names():
    seat = seat_at("etcd://ada:s3cr3t@127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(BackendUnavailable, match=r"127.0.0.1:1 cannot be reached.*127.0.0.1:2 cannot") as away:
        await seat.open()
    assert SECRET not in str(away.value)


async def test_a_member_that_is_away_is_not_asked_again_at_once():
    with etcd_server() as server:
        async with seat_at(server.url) as seat:
            server.kill()
            with pytest.raises(BackendUnavailable):
                await seat.coordinator.get("config")
            assert seat._gateway.pause > 0
            server.restart()
            assert await _insisting(lambda: seat.coordinator.get("config")) is None


async def test_a_member_that_hangs_costs_no_more_than_the_deadline():
    with etcd_server() as server:
        async with seat_at(f"{server.url}?timeout=0.3") as seat:
            server.pause()
            try:
                with pytest.raises(BackendUnavailable, match="did not answer within"):
                    await seat.coordinator.get("config")
            finally:
                server.resume()
            assert await _insisting(lambda: seat.coordinator.get("config")) is None


async def test_a_server_that_is_not_etcd_is_named_as_such():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as stranger:
        port = stranger.sockets[0].getsockname()[1]
        with pytest.raises(BackendError, match=f"127.0.0.1:{port} does not speak as etcd does") as refusal:
            await seat_at(f"etcd://127.0.0.1:{port}").open()
    assert not isinstance(refusal.value, BackendUnavailable)


# --- logins


@pytest.fixture
def guarded_server():
    with etcd_server() as server:
        server.control("user", "add", f"root:{SECRET}")
        server.control("user", "grant-role", "root", "root")
        server.control("role", "add", "duly")
        server.control("role", "grant-permission", "--prefix=true", "duly", "readwrite", "duly/")
        server.control("user", "add", f"ada:{SECRET}")
        server.control("user", "grant-role", "ada", "duly")
        server.control("auth", "enable")
        yield server


async def test_a_user_with_a_role_on_the_prefix_is_enough(guarded_server):
    async with seat_at(f"etcd://ada:{SECRET}@{guarded_server.host}") as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        [renewed] = await seat.coordinator.renew([lease], 2 * TTL)
        assert (await seat.coordinator.holder("leader")).fence == renewed.fence
        await seat.coordinator.put("config", b"1")
        watch = seat.coordinator.watch("config")
        assert (await anext(watch)).value == b"1"
        later = asyncio.ensure_future(anext(watch))
        await seat.coordinator.put("config", b"2")
        assert (await later).value == b"2"
        await watch.aclose()
        await seat.coordinator.release([renewed])


async def test_a_forgotten_token_is_fetched_again(guarded_server):
    async with seat_at(f"etcd://ada:{SECRET}@{guarded_server.host}") as seat:
        await seat.coordinator.put("config", b"1")
        guarded_server.restart()  # tokens are not kept on disk
        assert (await _insisting(lambda: seat.coordinator.get("config"))).value == b"1"


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (f"ada:{SECRET}-not@", "does not know this user and password"),
        (f"nobody:{SECRET}@", "does not know this user and password"),
        ("", "wants a user and a password"),
    ],
)
async def test_a_login_that_is_not_accepted_is_refused_without_repeating_it(guarded_server, login, reason):
    seat = seat_at(f"etcd://{login}{guarded_server.host}")
    with pytest.raises(BackendError, match=reason) as refusal:
        async with seat:
            await seat.coordinator.get("config")
    assert not isinstance(refusal.value, BackendUnavailable)
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(refusal.value.__cause__)


async def test_a_login_where_there_is_none_is_refused(etcd_server):
    with pytest.raises(BackendError, match="has no authentication"):
        await seat_at(f"etcd://ada:{SECRET}@{etcd_server.host}").open()


# --- TLS


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """Where the certificates are: the authority's, a server's, a client's."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, certificate in (
        ("server", authority.issue_cert("127.0.0.1", "localhost")),
        ("client", authority.issue_cert("client.example.org")),
    ):
        certificate.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        for number, blob in enumerate(certificate.cert_chain_pems):
            blob.write_to_path(tmp_path / f"{name}.pem", append=number > 0)
    return tmp_path


async def test_a_verified_server_is_talked_to_and_wants_our_certificate(files):
    tls = Files(files / "server.pem", files / "server.key", files / "ca.pem")
    with etcd_server(tls=tls) as server:
        ours = f"ssl_ca={files}/ca.pem&ssl_cert={files}/client.pem&ssl_key={files}/client.key"
        async with seat_at(f"{server.url}?{ours}") as seat:
            assert await seat.coordinator.acquire("leader", "a", TTL) is not None
        with pytest.raises(BackendError):
            await seat_at(f"{server.url}?ssl_ca={files}/ca.pem").open()


async def test_a_server_that_cannot_prove_who_it_is_is_refused(files):
    with etcd_server(tls=Files(files / "server.pem", files / "server.key")) as server:
        with pytest.raises(BackendError, match=r"certificate of 127\.0\.0\.1.* is not accepted.*ssl_ca"):
            await seat_at(server.url).open()
        async with seat_at(f"{server.url}?ssl_verify=none") as seat:
            assert await seat.coordinator.get("config") is None


async def test_a_file_that_is_no_certificate_is_named(tmp_path):
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(ValueError, match=r"ca\.pem"):
        await seat_at(f"etcds://127.0.0.1:1?ssl_ca={tmp_path}/ca.pem").open()


# --- what a doctor says


async def test_a_doctor_names_the_version_and_what_may_fail(etcd_server):
    async with seat_at(etcd_server.url) as seat:
        findings = await seat.examine()
    assert findings[0].severity is Severity.OK
    assert "etcd 3." in findings[0].message
    assert any("three allow for one" in finding.message for finding in findings)


async def test_a_doctor_sees_that_a_url_names_too_few_of_three(trio):
    async with seat_at(trio[0].url) as seat:
        messages = [finding.message for finding in await seat.examine()]
    assert any("names 1 of etcd's 3 members" in message for message in messages)


async def test_presence_and_leases_outlive_a_change_of_etcds_own_leader(trio):
    async with seat_at(url_of(trio, {"timeout": "10"})) as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        leading = await eventually(_leading(trio), "there is a leader")
        leading.kill()
        assert (await _insisting(lambda: seat.coordinator.holder("leader"))).fence == lease.fence
        [renewed] = await _insisting(lambda: seat.coordinator.renew([lease], TTL))
        assert renewed.fence == lease.fence


def _leading(servers):
    async def check():
        for server in servers:
            fields = (await asyncio.to_thread(server.control, "endpoint", "status")).split(", ")
            if fields[4] == "true":
                return server
        return None

    return check
