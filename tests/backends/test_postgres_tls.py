"""TLS, through a port that speaks it in front of a real server: verified where sslmode says so, refused in doubt."""

import asyncio

import pytest
import trustme
from postgres_proxies import tls_in_front_of

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.url import parse
from duly.errors import BackendError, BackendUnavailable, ConfigurationError


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca(authority, tmp_path):
    """The file of the authority's certificate."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


async def asked(port, options, host="localhost"):
    """What a server says through a connection of these options."""
    connections = Connections(parse(f"postgresql://duly:in-tests-only@{host}:{port}/postgres?{options}", {}), "tls")
    await connections.open()
    try:
        return await asyncio.gather(*(connections["store"].run(lambda c: c.fetchval("SELECT 1")) for _ in range(3)))
    finally:
        await connections.close()


async def test_a_verified_server_is_talked_to(postgres_server, authority, ca):
    async with tls_in_front_of(postgres_server.port, authority.issue_cert("localhost")) as port:
        assert await asked(port, f"sslmode=verify-full&sslrootcert={ca}") == [1, 1, 1]


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca"])
async def test_an_unknown_authority_is_refused_with_the_way_out(postgres_server, authority, mode):
    async with tls_in_front_of(postgres_server.port, authority.issue_cert("localhost")) as port:
        with pytest.raises(BackendError, match="sslrootcert") as refused:
            await asked(port, f"sslmode={mode}")
        assert not isinstance(refused.value, BackendUnavailable)


async def test_a_certificate_of_another_name_is_refused_unless_names_do_not_matter(postgres_server, authority, ca):
    async with tls_in_front_of(postgres_server.port, authority.issue_cert("elsewhere.example.org")) as port:
        with pytest.raises(BackendError, match="not valid for 'localhost'"):
            await asked(port, f"sslmode=verify-full&sslrootcert={ca}")
        assert await asked(port, f"sslmode=verify-ca&sslrootcert={ca}") == [1, 1, 1]
        assert await asked(port, "sslmode=require") == [1, 1, 1]
        assert await asked(port, "sslmode=prefer") == [1, 1, 1]


async def test_an_authority_that_is_named_counts_even_where_tls_alone_is_required(postgres_server, authority, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    async with tls_in_front_of(postgres_server.port, authority.issue_cert("localhost")) as port:
        with pytest.raises(BackendError, match="did not prove who it is"):
            await asked(port, f"sslmode=require&sslrootcert={other}")


async def test_a_certificate_of_ours_is_shown_where_it_is_asked_for(postgres_server, authority, ca, tmp_path):
    ours = authority.issue_cert("duly")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    ours.cert_chain_pems[0].write_to_path(cert)
    ours.private_key_pem.write_to_path(key)
    options = f"sslmode=verify-full&sslrootcert={ca}"
    async with tls_in_front_of(postgres_server.port, authority.issue_cert("localhost"), authority) as port:
        with pytest.raises(BackendError):
            await asked(port, options)
        assert await asked(port, f"{options}&sslcert={cert}&sslkey={key}") == [1, 1, 1]


@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_a_server_without_tls_is_refused_where_tls_is_wanted(postgres_server, mode):
    with pytest.raises(BackendError, match="speaks no TLS"):
        await asked(postgres_server.port, f"sslmode={mode}", host="127.0.0.1")


@pytest.mark.parametrize("mode", ["disable", "prefer"])
async def test_a_server_without_tls_is_talked_to_where_nobody_wants_it(postgres_server, mode):
    assert await asked(postgres_server.port, f"sslmode={mode}", host="127.0.0.1") == [1, 1, 1]


async def test_a_file_that_cannot_be_used_is_named(tmp_path):
    nothing = tmp_path / "nothing.pem"
    with pytest.raises(ConfigurationError, match=r"nothing\.pem"):
        await asked(1, f"sslmode=verify-full&sslrootcert={nothing}")
