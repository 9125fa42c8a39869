"""The PostgreSQL backend passes the whole conformance suite."""

import pytest
from tests.postgres_stores import emptied

from duly.backends.postgres import PostgresBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite
from duly.testing.postgres_servers import named_postgres, postgres_server


@pytest.fixture(scope="module")
def trusting_url():
    """A server that lets everybody in: proving a password costs more than most scenarios."""
    if named := named_postgres():
        yield named
        return
    with postgres_server(config={"fsync": "off"}, trust=True) as server:
        yield server.url


class TestPostgres(BackendSuite):
    @pytest.fixture(autouse=True)
    def _server(self, trusting_url):
        self.url = trusting_url

    def backend(self) -> PostgresBackend:
        return open_url(emptied(self.url, "conformance"), Opening(namespace="conformance"))
