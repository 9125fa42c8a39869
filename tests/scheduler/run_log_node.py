"""A node that logs every tenth of a second, to be killed: `python run_log_node.py URL`."""

import asyncio
import sys

from duly import Context, Scheduler, SchedulerConfig

scheduler = Scheduler(sys.argv[1], SchedulerConfig(lock_ttl=1.0))


@scheduler.job(keep_logs=10_000)
async def count(ctx: Context) -> None:
    for number in range(10_000):
        ctx.log.info("%d", number)
        print(number, flush=True)  # noqa: T201  # how the test knows how far it is
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    scheduler.run_forever()
