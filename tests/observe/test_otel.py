"""Traces from the submitter to the handler, through a store, by OpenTelemetry's own SDK."""

import json
import subprocess
import sys
import textwrap

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.api.api_support import caller_for, shop

from duly import RetryPolicy, RunFailed, Scheduler
from duly.observe.otel import OpenTelemetry


class Traced:
    """A provider of one's own, and what it was told."""

    def __init__(self):
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("tests")

    def spans(self, name):
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    def span(self, name):
        [span] = self.spans(name)
        return span


@pytest.fixture
def traced():
    return Traced()


def scheduler_on(url, traced, **options):
    scheduler = Scheduler(url)
    scheduler.observe(tracer=OpenTelemetry(traced.provider, **options))

    @scheduler.job
    async def work(word: str = "") -> str:
        with traced.tracer.start_as_current_span("inside"):
            return word

    @scheduler.job
    def work_in_thread() -> None:
        with traced.tracer.start_as_current_span("inside"):
            pass

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
    async def fail() -> None:
        raise ValueError("wrong")

    return scheduler


async def test_an_attempt_is_a_child_of_the_submitters_span_through_every_store(url, traced):
    """Two schedulers on one store, one that submits and one that works; memory is one process's own."""
    worker = scheduler_on(url, traced)
    submitter = worker if url == "memory://" else scheduler_on(url, traced)
    async with worker, submitter.client():
        with traced.tracer.start_as_current_span("request") as request:
            handle = await submitter.submit("work", {"word": "hi"})
        assert await handle.result(timeout=30) == "hi"
    attempt, inside = traced.span("process work"), traced.span("inside")
    assert attempt.parent.span_id == request.get_span_context().span_id
    assert attempt.links[0].context.span_id == request.get_span_context().span_id
    assert inside.parent.span_id == attempt.context.span_id
    assert {attempt.context.trace_id, inside.context.trace_id} == {request.get_span_context().trace_id}
    assert attempt.kind is trace.SpanKind.CONSUMER
    assert attempt.attributes["messaging.message.id"] == handle.id
    assert attempt.attributes["duly.outcome"] == "succeeded"


async def test_every_attempt_has_a_span_under_the_same_submitter_and_says_what_went_wrong(traced):
    scheduler = scheduler_on("memory://", traced)
    async with scheduler:
        with traced.tracer.start_as_current_span("request") as request:
            handle = await scheduler.submit("fail")
        with pytest.raises(RunFailed):
            await handle.result(timeout=30)
    first, second = traced.spans("process fail")
    assert [span.attributes["duly.attempt"] for span in (first, second)] == [1, 2]
    for span in (first, second):
        assert span.parent.span_id == request.get_span_context().span_id
        assert not span.status.is_ok
        assert span.events[0].attributes["exception.message"] == "wrong"
        assert "ValueError" in span.events[0].attributes["exception.stacktrace"]


async def test_a_handler_in_a_thread_is_inside_its_span(traced):
    scheduler = scheduler_on("memory://", traced)
    async with scheduler:
        await (await scheduler.submit("work_in_thread")).result(timeout=30)
    assert traced.span("inside").parent.span_id == traced.span("process work_in_thread").context.span_id


async def test_without_a_submitters_span_an_attempt_begins_a_trace(traced):
    scheduler = scheduler_on("memory://", traced)
    async with scheduler:
        handle = await scheduler.trigger("work")
        await handle.result(timeout=30)
        assert (await handle.get()).headers is None
    span = traced.span("process work")
    assert span.parent is None
    assert not span.links


async def test_an_attempt_may_begin_a_trace_of_its_own_that_is_linked(traced):
    scheduler = scheduler_on("memory://", traced, new_trace=True)
    async with scheduler:
        with traced.tracer.start_as_current_span("request") as request:
            handles = await scheduler.submit_many("work", [{"word": "a"}, {"word": "b"}])
        for handle in handles:
            await handle.result(timeout=30)
    spans = traced.spans("process work")
    assert len({span.context.trace_id for span in spans} | {request.get_span_context().trace_id}) == 3
    assert {span.links[0].context.span_id for span in spans} == {request.get_span_context().span_id}


async def test_a_handler_that_submits_hands_its_own_span_on(traced):
    scheduler = scheduler_on("memory://", traced)

    @scheduler.job
    async def first() -> str:
        return (await scheduler.submit("work")).id

    async with scheduler:
        run_id = await (await first.submit()).result(timeout=30)
        await scheduler._result(run_id, 30)
    assert traced.span("process work").parent.span_id == traced.span("process first").context.span_id


async def test_a_call_of_the_api_carries_its_traceparent_into_the_run():
    scheduler = shop("memory://")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with scheduler.client():
        call = await caller_for(scheduler, "submitter")
        for sent, kept in ((traceparent, {"traceparent": traceparent}), ("00-nonsense", None), (None, None)):
            accepted = (await call.post("/runs", {"payload": 1}, traceparent=sent)).json
            assert (await scheduler.get_run(accepted["id"])).headers == kept


WORKER = """
import asyncio, json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from duly import Scheduler
from duly.observe.otel import OpenTelemetry

async def main(url, run_id):
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    scheduler = Scheduler(url)
    scheduler.observe(tracer=OpenTelemetry(provider))

    @scheduler.job
    async def work(word: str = "") -> str:
        return word

    async with scheduler:
        await scheduler._result(run_id, 30)
    [span] = kept.get_finished_spans()
    print(json.dumps({"trace": f"{span.context.trace_id:032x}", "parent": f"{span.parent.span_id:016x}"}))

asyncio.run(main(*sys.argv[1:]))
"""


def python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


async def test_the_trace_goes_on_in_another_process(traced, tmp_path):
    url = f"sqlite:///{tmp_path}/duly.db"
    submitter = scheduler_on(url, traced)
    async with submitter.client():
        with traced.tracer.start_as_current_span("request") as request:
            handle = await submitter.submit("work")
    done = python(WORKER, url, handle.id)
    assert done.returncode == 0, done.stderr
    context = request.get_span_context()
    assert json.loads(done.stdout) == {"trace": f"{context.trace_id:032x}", "parent": f"{context.span_id:016x}"}


def test_nothing_of_opentelemetry_is_imported_unless_asked_for():
    code = """
    import sys
    import duly, duly.scheduler, duly.observe, duly.api
    assert not [name for name in sys.modules if name.startswith(("opentelemetry", "structlog", "django", "dishka"))]
    """
    done = python(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
