"""The command line: `duly`. Every command is a module of this package, imported when it is asked for.

What a command finds out or does is the scheduler's; here arguments are read and answers are written down. Rich, asyncio
and the stores' packages are imported only by what needs them, so that `duly --help` is there at once.
"""

from __future__ import annotations

import click

from duly.cli.group import Entry, LazyGroup
from duly.version import __version__

_RUNNING = "Running"
_LOOKING = "Looking"
_OPERATING = "Operating"
_CHECKING = "Checking"

COMMANDS = {
    "demo": Entry("duly.cli.demo:demo", "Show a dozen jobs at work, on a store that is thrown away.", _RUNNING),
    "run": Entry("duly.cli.run:run", "Run a node: plan and work until it is told to stop.", _RUNNING),
    "scheduler": Entry("duly.cli.run:scheduler", "Plan, and serve the API; workers do the work.", _RUNNING),
    "worker": Entry("duly.cli.run:worker", "Work for what a scheduler plans.", _RUNNING),
    "serve": Entry("duly.cli.run:serve", "Serve the API alone.", _RUNNING),
    "jobs": Entry("duly.cli.jobs:jobs", "List the jobs.", _LOOKING),
    "runs": Entry("duly.cli.runs:runs", "List runs, the newest first.", _LOOKING),
    "show": Entry("duly.cli.show:show", "Show all there is to know about a job or a run.", _LOOKING),
    "explain": Entry("duly.cli.explain:explain", "Tell why a run did or did not happen.", _LOOKING),
    "next": Entry("duly.cli.next:next_", "Show when a cron expression or a job is due.", _LOOKING),
    "events": Entry("duly.cli.events:events", "Follow what happens to runs, jobs and nodes.", _LOOKING),
    "nodes": Entry("duly.cli.nodes:nodes", "List the nodes that are alive.", _LOOKING),
    "apply": Entry("duly.cli.job_files:apply", "Bring the store in line with a file of jobs.", _OPERATING),
    "submit": Entry("duly.cli.submit:submit", "Submit a run to a handler.", _OPERATING),
    "trigger": Entry("duly.cli.submit:trigger", "Run a job once more, now.", _OPERATING),
    "pause": Entry("duly.cli.operate:pause", "Stop planning and starting a job until it is resumed.", _OPERATING),
    "resume": Entry("duly.cli.operate:resume", "Let a paused job go on.", _OPERATING),
    "remove": Entry("duly.cli.operate:remove", "Remove a job and cancel its waiting runs.", _OPERATING),
    "cancel": Entry("duly.cli.operate:cancel", "Cancel a run.", _OPERATING),
    "redrive": Entry("duly.cli.operate:redrive", "Run a failed, lost or cancelled run again.", _OPERATING),
    "migrate": Entry("duly.cli.migrate:migrate", "Bring the store's schema up to date.", _OPERATING),
    "token": Entry("duly.cli.token:token", "Make, list and revoke tokens of the API.", _OPERATING),
    "audit": Entry("duly.cli.audit:audit", "Show and verify the log of administrative actions.", _CHECKING),
    "config": Entry("duly.cli.config:config", "Show every setting and where it comes from.", _CHECKING),
    "check": Entry("duly.cli.job_files:check", "Check a file of jobs, and show when they are due.", _CHECKING),
    "doctor": Entry("duly.cli.doctor:doctor", "Say what is well and what is not.", _CHECKING),
    "bench": Entry("duly.cli.bench:bench", "Measure how fast this machine and store are.", _CHECKING),
}


EXAMPLES = (
    "duly demo                                # see it at work",
    "duly run app:scheduler                   # run your own jobs",
    "duly run jobs.toml                       # or plain commands, without any code",
    "duly jobs --url sqlite:///duly.db        # look at them",
    'duly next "30 2 * * *" --tz Europe/Rome  # check an expression',
)


@click.group(
    cls=LazyGroup, entries=COMMANDS, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="duly", message="%(prog)s %(version)s")
def cli() -> None:
    """Duly, a distributed job scheduler: every due instant is run once, on time, by one of your processes.

    The store is --url, DULY_URL, POSTGRES_DSN or REDIS_URL, the url of duly.toml, or the file duly.db in this folder.
    """


def main() -> None:
    """The entry point of the `duly` command."""
    cli(prog_name="duly")
