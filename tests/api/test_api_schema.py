"""The document and the service agree: calls made from the document never meet a fault or an undocumented answer.

A modest number of examples per operation and store; `make fuzz-api` makes many.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.api.api_server import served

from duly.api.routes import ROUTES

EXAMPLES = 5


@pytest.fixture(scope="module", params=["memory", "sqlite", "redis", "postgres"])
def service(request, tmp_path_factory):
    """A server on each kind of store, with a namespace of its own."""
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('schema')}/duly.db"
        case kind:
            url = request.getfixturevalue(f"{kind}_url")
    with served(url, namespace="schema") as (port, token):
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json"), token


# A call of `GET /events` has no end to wait for: it is tested by hand, in test_api_events.py.
ENDING = [route for route in ROUTES if route.path != "/events"]
CAN_BE_WRONG = [route for route in ENDING if route.body or route.query or route.variable]
name = "{0.method} {0.path}".format


@pytest.mark.parametrize("route", ENDING, ids=name)
def test_what_the_document_allows_is_answered_as_it_says(service, route):
    check(service, route, GenerationMode.POSITIVE)


@pytest.mark.parametrize("service", ["memory"], indirect=True)
@pytest.mark.parametrize("route", CAN_BE_WRONG, ids=name)
def test_what_the_document_does_not_allow_is_refused_as_it_says(service, route):
    check(service, route, GenerationMode.NEGATIVE)


def check(service, route, mode):
    schema, token = service
    operation = schema[route.path][route.method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=HealthCheck)
    def call(case):
        # What only the server can know (handlers, zones, cron expressions) is refused with 422, as documented.
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=[positive_data_acceptance])

    call()
