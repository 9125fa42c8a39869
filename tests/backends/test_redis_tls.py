"""TLS, through a forwarder that speaks it in front of a real server: verified by default, and refused when in doubt."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import trustme
from forwarding import forward, server_context, serving
from redis_connections import wired

from duly.errors import BackendError, BackendUnavailable


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca(authority, tmp_path):
    """The file of the authority's certificate."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@asynccontextmanager
async def tls_in_front_of(url, certificate, authority=None):
    """A port that speaks TLS and passes everything on to the server; with `authority`, only for those it has signed."""
    server_port = int(url.partition("127.0.0.1:")[2].partition("/")[0])

    async def serve(reader, writer):
        await forward(reader, writer, server_port)

    async with serving(serve, server_context(certificate, authority)) as port:
        yield port


async def test_a_verified_server_is_talked_to(redis_server, authority, ca):
    async with (
        tls_in_front_of(redis_server.url, authority.issue_cert("localhost")) as port,
        wired(f"rediss://localhost:{port}?ssl_ca={ca}") as wire,
    ):
        large = b"x" * 1_000_000
        answers = await asyncio.gather(*(wire.call("echo", large, number) for number in range(5)))
        assert answers == [[large, str(number).encode()] for number in range(5)]
        async with wire.listen("door") as ear:
            await ear.wait(0)
            await wire.call("ring", "door", "knock")
            assert await ear.wait(60) == [b"knock"]


async def test_an_unknown_authority_is_refused_with_the_way_out(redis_server, authority):
    async with tls_in_front_of(redis_server.url, authority.issue_cert("localhost")) as port:
        with pytest.raises(BackendError, match="ssl_ca") as refused:
            async with wired(f"rediss://localhost:{port}"):
                pass
        assert not isinstance(refused.value, BackendUnavailable)


async def test_a_certificate_of_another_name_is_refused_unless_names_do_not_matter(redis_server, authority, ca):
    async with tls_in_front_of(redis_server.url, authority.issue_cert("elsewhere.example.org")) as port:
        with pytest.raises(BackendError, match="not valid for 'localhost'"):
            async with wired(f"rediss://localhost:{port}?ssl_ca={ca}"):
                pass
        async with wired(f"rediss://localhost:{port}?ssl_ca={ca}&ssl_verify=ca") as wire:
            assert await wire.call("echo", 1) == [b"1"]
        async with wired(f"rediss://localhost:{port}?ssl_verify=none") as wire:
            assert await wire.call("echo", 1) == [b"1"]


async def test_a_certificate_of_ours_is_shown_where_it_is_asked_for(redis_server, authority, ca, tmp_path):
    ours = authority.issue_cert("duly")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    ours.cert_chain_pems[0].write_to_path(cert)
    ours.private_key_pem.write_to_path(key)
    async with tls_in_front_of(redis_server.url, authority.issue_cert("localhost"), authority) as port:
        with pytest.raises(BackendUnavailable):
            async with wired(f"rediss://localhost:{port}?ssl_ca={ca}"):
                pass
        async with wired(f"rediss://localhost:{port}?ssl_ca={ca}&ssl_cert={cert}&ssl_key={key}") as wire:
            assert await wire.call("echo", 1) == [b"1"]


async def test_a_server_without_tls_is_unavailable(redis_server):
    with pytest.raises(BackendUnavailable):
        async with wired(f"rediss://127.0.0.1:{redis_server.port}?timeout=1"):
            pass
