"""A node whose handlers are hostile, as a process of its own: `python -m tests.hostile.node URL NAME FOLDER`."""

import sys
import time
from pathlib import Path

from duly import Context, Job, Scheduler, SchedulerConfig
from tests.hostile.handlers import EVERY

url, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
scheduler = Scheduler(url, SchedulerConfig(node_id=name, lock_ttl=2.0, leader_ttl=1.0, max_concurrent=8))


@scheduler.job
def long(ctx: Context, number: int) -> str:
    """Goes on until a file says that it may end."""
    (folder / f"began-{number}-{name}").touch()
    ctx.progress(float("nan"), note="\ud800")
    while not (folder / "go").exists():
        time.sleep(0.01)
    return name


for each, handler in EVERY.items():
    scheduler.add(Job(name=each, handler=handler, retry=None))

if __name__ == "__main__":
    scheduler.run_forever(log_level="ERROR")
