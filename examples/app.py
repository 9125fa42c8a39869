"""The first example: three jobs, one file, nothing to install but Duly."""

from duly import Context, Cron, Every, RetryPolicy, Scheduler

scheduler = Scheduler()  # ./duly.db, or what DULY_URL says


@scheduler.job(Cron("30 2 * * *", timezone="Europe/Berlin"), timeout=600, retry=RetryPolicy.exponential(5))
async def nightly_report(ctx: Context) -> None:
    """Build and mail the daily report."""
    ctx.log.info("building the report for %s", ctx.due.date())


@scheduler.job(Every(seconds=15), overlap="skip")
def heartbeat() -> None:
    """A sync handler: it runs in a thread."""
    print("still here")


@scheduler.job(queue="mail")  # no schedule: it runs when it is submitted
async def send_mail(to: str, subject: str) -> str:
    return f"sent {subject!r} to {to}"
