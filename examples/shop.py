"""A small shop: schedules, retries, progress, and a job that takes too long for its schedule."""

import asyncio

from duly import Context, Cron, Every, RetryPolicy, Scheduler

scheduler = Scheduler()


@scheduler.job(Cron("30 2 * * *", timezone="Europe/Berlin"), timeout=600, tags=["reports"])
async def nightly_report(ctx: Context) -> None:
    """Build and mail the daily report."""
    ctx.log.info("building the report for %s", ctx.due.date())


@scheduler.job(Every(seconds=5))
async def sync_stock(ctx: Context) -> int:
    """Takes longer than its period at times: that due time is skipped, with its reason."""
    parts = 12
    for part in range(parts):
        ctx.progress(part, parts, "reading the warehouse")
        await asyncio.sleep(0.6)
    return parts


@scheduler.job(Every(seconds=2), queue="mail")
async def send_newsletter() -> None:
    await asyncio.sleep(0.3)


@scheduler.job(Every(seconds=7), retry=RetryPolicy.exponential(2))
async def charge_cards(ctx: Context) -> None:
    """The bank is unreliable: the first attempt fails."""
    if ctx.attempt == 1:
        raise ConnectionError("the bank does not answer")


@scheduler.job(Every(seconds=11), retry=None)
async def fax_supplier() -> None:
    raise TimeoutError("nobody picks up")
