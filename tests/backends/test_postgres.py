"""The PostgreSQL backend passes the whole conformance suite."""

import pytest
from tests.postgres_stores import emptied

from duly.backends.postgres import PostgresBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite


class TestPostgres(BackendSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url):
        self.url = postgres_url

    def backend(self) -> PostgresBackend:
        return open_url(emptied(self.url, "conformance"), Opening(namespace="conformance"))
