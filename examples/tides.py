"""A schedule of one's own: any object that can tell when it is due next."""

from datetime import UTC, datetime, timedelta

from duly import Scheduler

scheduler = Scheduler("sqlite:///tides.db")

FIRST_HIGH_WATER = datetime(2026, 1, 1, 4, 12, tzinfo=UTC)
BETWEEN = timedelta(hours=12, minutes=25, seconds=14)


class HighWater:
    """High tide, roughly: every 12 hours and 25 minutes."""

    def next_run(self, after: datetime) -> datetime:
        return FIRST_HIGH_WATER + ((after - FIRST_HIGH_WATER) // BETWEEN + 1) * BETWEEN


@scheduler.job(HighWater())
async def open_the_lock_gates() -> None:
    print("opening")
