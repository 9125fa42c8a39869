"""Testing one's own jobs: a day passes in milliseconds, and an exception fails the test."""

from datetime import UTC, datetime

from app import scheduler, send_mail


async def test_the_report_is_built_every_night(duly_harness) -> None:
    h = duly_harness(scheduler, now=datetime(2027, 3, 27, tzinfo=UTC))
    await h.travel(days=2)
    nights = [f"{run.due:%d %H:%M}" for run in h.runs("nightly_report")]
    assert nights == ["27 01:30", "28 01:00"]  # 02:30 in Berlin; on the 28th clocks go forward past it


async def test_a_mail_is_sent(duly_harness) -> None:
    h = duly_harness(scheduler)
    run = await send_mail.submit(to="ada@example.org", subject="Hi")
    await h.drain()
    assert await run.result() == "sent 'Hi' to ada@example.org"


def test_calling_a_job_calls_its_function() -> None:
    assert send_mail.name == "send_mail"
