"""A node that logs every tenth of a second, to be killed: `python run_log_node.py URL`."""

import asyncio
import sys

from duly import Context, Scheduler, SchedulerConfig

scheduler = Scheduler(sys.argv[1], SchedulerConfig(lock_ttl=1.0))


@scheduler.job(keep_logs=10_000, delivery="at_most_once")
async def count(ctx: Context) -> None:
    for number in range(10_000):
        ctx.log.info("%d", number)
        print(number, flush=True)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    scheduler.run_forever()
