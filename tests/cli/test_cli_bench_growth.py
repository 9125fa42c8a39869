"""`duly bench growth`: the rule by which a cost passes, the table, and the whole measurement in small."""

import json

import pytest
from click.testing import CliRunner
from tests.cli.cli_support import ask, invoke

from duly.cli import cli
from duly.cli.bench.costs import Cost, Figures, allowed_factor, excess, failures, growth, table
from duly.cli.bench.filling import Amounts, Filler, job_name
from duly.cli.bench.growth import Plan, parse_sizes
from duly.cli.bench.server_calls import slow_calls, slowest
from duly.model import State
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server


def cost(*p50, unit="ms", bar=None, p99=None, sizes=(10_000, 100_000, 1_000_000)):
    figures = [Figures(size, value, p99 or value) for size, value in zip(sizes, p50, strict=False)]
    return Cost("a page", unit, bar, tuple(figures))


def test_a_cost_may_double_when_the_store_has_ten_times_as_much():
    assert growth(cost(6.0, 12.0, 24.0)) == []
    assert growth(cost(6.0, 12.0, 25.0)) == ["a page: grows from 12.0 to 25.0 ms between 100,000 and 1,000,000"]


def test_a_cost_that_is_lower_again_at_a_larger_size_has_not_grown():
    assert growth(cost(0.2, 9.0, 0.3)) == []
    assert growth(cost(9.0, 0.3, 9.0)) == ["a page: grows from 0.30 to 9.00 ms between 100,000 and 1,000,000"]


@pytest.mark.parametrize(("before", "after", "allowed"), [(10, 100, 2.0), (10, 1000, 4.0), (1000, 1000, 1.0)])
def test_the_allowed_factor_follows_the_step(before, after, allowed):
    assert allowed_factor(before, after) == pytest.approx(allowed)


@pytest.mark.parametrize(("unit", "below"), [("ms", 5.0), ("%", 1.0), ("MB", 100.0), ("s", 1.0), ("µs", 50.0)])
def test_below_the_floor_of_its_unit_a_cost_is_not_judged(unit, below):
    assert growth(cost(below / 100, below, unit=unit)) == []
    assert growth(cost(below / 100, below * 1.01, unit=unit)) != []


def test_a_bar_holds_at_every_size_for_99_of_100_answers():
    assert excess(cost(1.0, 1.0, 1.0, bar=50.0, p99=50.0)) == []
    assert excess(cost(60.0, 1.0, bar=50.0)) == ["a page: 60.0 ms at 10,000, more than 50"]
    assert failures([cost(1.0, 60.0, bar=50.0)]) == [
        "a page: grows from 1.00 to 60.0 ms between 10,000 and 100,000",
        "a page: 60.0 ms at 100,000, more than 50",
    ]


def test_the_table_fits_80_columns_and_marks_what_fails():
    costs = [
        Cost("page of jobs, middle", "ms", 50.0, cost(123456.7, 1.0, 123456.7).figures),
        cost(1.0, 1.1, bar=1.0),
        cost(1.0),
    ]
    lines = table(costs).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in lines[2:]] == ["grows", "high", "–"]
    assert "1,000,000" in lines[0]


def test_more_than_three_sizes_are_written_below_each_other():
    sizes = (10, 100, 1000, 10_000)
    parts = table([cost(1.0, 1.0, 1.0, 1.0, sizes=sizes)]).split("\n\n")
    assert ["10,000" in part for part in parts] == [False, True]
    assert max(len(line) for part in parts for line in part.splitlines()) <= 80


@pytest.mark.parametrize(
    ("text", "sizes"), [("10k,100K,1M", (10_000, 100_000, 1_000_000)), ("500", (500,)), (" 1 , 2 ", (1, 2))]
)
def test_sizes_are_numbers_thousands_and_millions(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "-1", "k", "1.5k", "10k,1k", "5,5", "ten"])
def test_other_sizes_are_refused_with_the_way_out(text):
    message = invoke("bench", "growth", "--sizes", text, code=2).stderr
    assert "expected e.g. 500, 10k, 1M" in message or "must be larger than the one before" in message


def test_a_kind_is_left_out_or_limited():
    plan = Plan((100, 1000), Amounts(schedules=500, waiting=0, history=10**9), 1.0)
    assert plan.amounts(100) == Amounts(100, 0, 100)
    assert plan.amounts(1000) == Amounts(500, 0, 1000)


def test_only_calls_that_became_slower_since_the_first_reading_count():
    assert slowest({"1": 50.0, "2": 3.0}, {"1": 50.0, "2": 12.0, "3": 7.0}) == 12.0
    assert slowest({"1": 50.0}, {"1": 50.0}) == 0.0


def test_filling_writes_what_is_missing_to_the_wanted_amounts(tmp_path):
    async def fill(scheduler):
        filler = Filler(scheduler, lambda what, done, total: None)
        for amounts in (Amounts(3, 10, 20), Amounts(5, 1500, 1100)):
            await filler.fill(amounts)
        return await scheduler.counts(), [job.name for job in await scheduler.jobs()]

    counts, jobs = ask(f"sqlite:///{tmp_path / 'filled.db'}", fill)
    assert jobs == [job_name(number) for number in range(5)]
    assert sum(counts.states[state] for state in (State.QUEUED, State.PENDING)) == 1500
    assert counts.states[State.COMPLETED] + counts.states[State.FAILED] == 1100
    assert counts.states[State.FAILED] == 2


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A whole measurement on a file: its exit code, its document and the file."""
    path = tmp_path_factory.mktemp("growth") / "mine.db"
    arguments = ["bench", "growth", "--sizes", "200,2000", "--seconds", "1", "--url", f"sqlite:///{path}", "--json"]
    ended = CliRunner().invoke(cli, arguments, prog_name="duly", catch_exceptions=False)
    return ended.exit_code, json.loads(ended.stdout), path


def test_every_reading_and_every_idle_cost_is_measured_at_every_size(measured):
    _, found, _ = measured
    assert found["sizes"] == [200, 2000]
    assert [each["history"] for each in found["filled"]] == [200, 2000]
    assert all([each["size"] for each in cost["figures"]] == [200, 2000] for cost in found["costs"])
    assert {cost["name"] for cost in found["costs"]} >= {
        "upcoming(20)",
        "page of jobs",
        "page of runs",
        "runs of a job",
        "failed runs",
        "counts",
        "queues",
        "metrics",
        "next of a job",
        "explain an instant",
        "versions of a job",
        "explain a run",
        "show a job",
        "show a run",
        "statistics",
        "idle leader, CPU",
        "idle leader, memory",
        "leader's start, CPU",
        "leader, slowest call",
        "drain, per run",
    }


def test_answers_took_some_time_and_the_leader_some_memory(measured):
    _, found, _ = measured
    by_name = {cost["name"]: cost for cost in found["costs"]}
    assert all(0 < figures["p50"] <= figures["p99"] for figures in by_name["page of runs"]["figures"])
    assert all(figures["p50"] > 10 for figures in by_name["idle leader, memory"]["figures"])
    assert all(call["verb"] and call["ms"] > 0 for call in found["slowest_calls"])


def test_it_fails_exactly_if_a_cost_grows_or_is_too_high(measured):
    code, found, _ = measured
    assert code == (1 if found["failed"] else 0)


def test_other_namespaces_of_the_store_stay_as_they_are(measured):
    _, _, path = measured
    assert json.loads(invoke("runs", "--json", "--url", f"sqlite:///{path}").stdout) == []


def slow_calls_of(url):
    """What the server records about calls to this store, after a few of them."""

    async def read(scheduler):
        client = await scheduler.opened()
        await scheduler.runs()
        recorded = slow_calls(client.backend)
        return None if recorded is None else await recorded.read()

    return ask(url, read)


def test_redis_tells_its_slow_commands_in_this_namespace():
    with redis_server(config={"slowlog-log-slower-than": "0"}) as server:
        found = slow_calls_of(server.url)
    assert found
    assert all(milliseconds >= 0 for milliseconds in found.values())


def test_redis_tells_nothing_below_its_threshold():
    with redis_server(config={"slowlog-log-slower-than": "60000000"}) as server:
        assert slow_calls_of(server.url) == {}


def test_postgresql_without_the_extension_tells_nothing():
    with postgres_server() as server:
        assert slow_calls_of(server.url) is None


def test_a_file_has_no_server(tmp_path):
    assert slow_calls_of(f"sqlite:///{tmp_path / 'a.db'}") is None
