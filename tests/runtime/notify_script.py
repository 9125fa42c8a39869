"""A node that notifies, for tests that kill it. KILL=yes: it dies right after a message was sent."""

import os
import signal
import sys

from duly import Every, Scheduler, SchedulerConfig, Webhook


class Fatal(Webhook):
    """Delivers a message, and dies before anything can be recorded."""

    async def send(self, notification):
        await super().send(notification)
        os.kill(os.getpid(), signal.SIGKILL)


hook = (Fatal if os.environ.get("KILL") else Webhook)(sys.argv[2], name="hook", on=["failure"])
config = SchedulerConfig(notify_wait=0.1, leader_ttl=1.0, lock_ttl=3.0)
scheduler = Scheduler(sys.argv[1], config, notify=[hook])


@scheduler.job(Every(seconds=1), retry=None)
async def report() -> None:
    raise ValueError("boom")


if __name__ == "__main__":
    scheduler.run_forever(log_level="INFO")
