"""A program for the service: what is posted without the name of a handler goes to the default one.

After `duly serve service:scheduler`, `POST /jobs` takes `{"payload": "order 7"}`. `DULY_DEFAULT_HANDLER` names another
handler, where code names none.
"""

from typing import Any

from duly import Context, Scheduler, SchedulerConfig

scheduler = Scheduler(config=SchedulerConfig(default_handler="handle"))


@scheduler.job
async def handle(ctx: Context, payload: Any = None, **fields: Any) -> Any:
    """Take any payload: an object comes as keyword arguments, everything else as `payload`."""
    work = fields if payload is None else payload
    ctx.log.info("handling %r", work)
    return work
