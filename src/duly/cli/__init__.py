"""The command line: `duly`. Each command is in a module of this package, which is imported when the command is used.

Commands read arguments, call the scheduler and write its answers. Rich, asyncio and the packages of the stores are
imported only where they are needed, so that `duly --help` is fast.
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
    "init": Entry("duly.cli.init:init", "Write a small project to start from.", _RUNNING),
    "demo": Entry("duly.cli.demo:demo", "Run example jobs on two nodes, one of which is killed.", _RUNNING),
    "run": Entry("duly.cli.run:run", "Run a node: plan and execute jobs until stopped.", _RUNNING),
    "scheduler": Entry("duly.cli.run:scheduler", "Plan, and serve the API; workers execute the runs.", _RUNNING),
    "worker": Entry("duly.cli.run:worker", "Execute runs that a scheduler plans.", _RUNNING),
    "serve": Entry("duly.cli.run:serve", "Serve only the API.", _RUNNING),
    "jobs": Entry("duly.cli.jobs:jobs", "List the jobs.", _LOOKING),
    "runs": Entry("duly.cli.runs:runs", "List runs, the newest first.", _LOOKING),
    "show": Entry("duly.cli.show:show", "Show the details of a job or a run.", _LOOKING),
    "explain": Entry("duly.cli.explain:explain", "Explain why a run did or did not happen.", _LOOKING),
    "logs": Entry("duly.cli.logs:logs", "Show the log lines and the output of a run.", _LOOKING),
    "next": Entry("duly.cli.next:next_", "Show when a cron expression or a job is due.", _LOOKING),
    "events": Entry("duly.cli.events:events", "Show or follow events of runs, jobs and nodes.", _LOOKING),
    "history": Entry("duly.cli.history:history", "Show the versions of a job's definition.", _LOOKING),
    "queues": Entry("duly.cli.queues:queues", "List the queues, and what waits in them.", _LOOKING),
    "handlers": Entry("duly.cli.handlers:handlers", "List the handlers, and the nodes that have them.", _LOOKING),
    "nodes": Entry("duly.cli.nodes:nodes", "List the nodes that are alive.", _LOOKING),
    "top": Entry("duly.cli.top:top", "Show all of this live, on the whole screen.", _LOOKING),
    "apply": Entry("duly.cli.job_files:apply", "Write the jobs of a job file to the store.", _OPERATING),
    "submit": Entry("duly.cli.submit:submit", "Submit a run to a handler.", _OPERATING),
    "trigger": Entry("duly.cli.submit:trigger", "Run a job once more, now.", _OPERATING),
    "pause": Entry("duly.cli.pausing:pause", "Stop jobs, or a queue, until they are resumed.", _OPERATING),
    "resume": Entry("duly.cli.pausing:resume", "Resume paused jobs, or a queue.", _OPERATING),
    "rollback": Entry("duly.cli.history:rollback", "Give a job an earlier definition again.", _OPERATING),
    "backfill": Entry("duly.cli.backfill:backfill", "Create the runs of past due times that have none.", _OPERATING),
    "remove": Entry("duly.cli.operate:remove", "Remove a job and cancel its waiting runs.", _OPERATING),
    "restore": Entry("duly.cli.operate:restore", "Plan a removed job again.", _OPERATING),
    "cancel": Entry("duly.cli.operate:cancel", "Cancel a run, or all that match.", _OPERATING),
    "redrive": Entry("duly.cli.operate:redrive", "Run failed, lost or cancelled runs again.", _OPERATING),
    "purge": Entry("duly.cli.purge:purge", "Delete ended runs for good.", _OPERATING),
    "migrate": Entry("duly.cli.operate:migrate", "Bring the store's schema up to date.", _OPERATING),
    "export": Entry("duly.cli.moving:export", "Write everything in the store to a file.", _OPERATING),
    "import": Entry("duly.cli.moving:import_", "Load an export into an empty store.", _OPERATING),
    "copy": Entry("duly.cli.moving:copy", "Move everything to another store while nodes work.", _OPERATING),
    "token": Entry("duly.cli.token:token", "Create, list and revoke API tokens.", _OPERATING),
    "notify": Entry("duly.cli.notify:notify", "List and test the targets of notifications.", _CHECKING),
    "audit": Entry("duly.cli.audit:audit", "Show and verify the log of administrative actions.", _CHECKING),
    "config": Entry("duly.cli.config:config", "Show every setting and its source.", _CHECKING),
    "check": Entry("duly.cli.job_files:check", "Check a job file, and show when its jobs are due.", _CHECKING),
    "doctor": Entry("duly.cli.doctor:doctor", "Check the installation and the store.", _CHECKING),
    "completion": Entry("duly.cli.completion:completion", "Write the completion script of a shell.", _CHECKING),
    "bench": Entry("duly.cli.bench:bench", "Measure how fast this machine and store are.", _CHECKING),
}


EXAMPLES = (
    "duly demo                                # try it out",
    "duly init shop                           # write a project to start from",
    "duly run app:scheduler                   # run your own jobs",
    "duly run jobs.toml                       # run plain commands, without code",
    "duly jobs --url sqlite:///duly.db        # list them",
    'duly next "30 2 * * *" --tz Europe/Rome  # check an expression',
)


@click.group(
    cls=LazyGroup, entries=COMMANDS, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="duly", message="%(prog)s %(version)s")
def cli() -> None:
    """Duly, a distributed job scheduler: each due time is run once, on time, by one of your processes.

    The store is --url, DULY_URL, POSTGRES_DSN or REDIS_URL, url in duly.toml, or the file duly.db in this folder.
    """


def main() -> None:
    """The entry point of the `duly` command."""
    cli(prog_name="duly")
