"""Testing your own jobs: hours pass in a moment, and an exception of a handler fails the test."""

import asyncio
from datetime import UTC, datetime

from app import scheduler, send_mail


async def test_the_report_is_built_in_the_night_when_clocks_go_forward(duly_harness) -> None:
    h = duly_harness(scheduler, now=datetime(2027, 3, 28, 0, 30, tzinfo=UTC))
    await h.travel(hours=1)
    [report] = h.runs("nightly_report")
    assert f"{report.due:%H:%M}" == "01:00"  # in Berlin clocks go from 02:00 to 03:00 and past 02:30


async def test_a_mail_is_sent(duly_harness) -> None:
    h = duly_harness(scheduler)
    run = await send_mail.submit(to="ada@example.org", subject="Hi")
    await h.drain()
    assert await run.result() == "sent 'Hi' to ada@example.org"


def test_the_same_without_an_event_loop(duly_harness) -> None:
    h = duly_harness(scheduler)
    h.sync.run(lambda: send_mail.submit(to="ada@example.org", subject="Hi"))
    h.sync.drain()
    assert [run.state for run in h.runs("send_mail")] == ["completed"]


def test_calling_a_job_calls_its_function() -> None:
    assert asyncio.run(send_mail(to="ada@example.org", subject="Hi")) == "sent 'Hi' to ada@example.org"
