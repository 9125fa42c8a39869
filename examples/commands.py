"""Programs instead of Python: a command is a handler too, with the same retries, timeouts and history."""

from duly import Command, Cron, Job, Scheduler, SchedulerConfig

scheduler = Scheduler("sqlite:///commands.db", SchedulerConfig(allow_commands=True))

scheduler.add(
    Job(
        name="disk-usage",
        schedule=Cron("*/5 * * * *"),
        handler=Command(["df", "--output=pcent", "/"], env={"LC_ALL": "C"}),
        timeout=30,
    )
)
