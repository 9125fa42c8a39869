"""The command of a run is looked up in its job's definition, and nowhere else."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from duly import BackendUnavailable, GiveUp
from duly.model import CommandSpec, JobRecord, JobSpec, Origin, Run
from duly.model.job import COMMAND_HANDLER
from duly.runtime import stored_commands as stored
from duly.runtime.stored_commands import Lookup, command_of

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
COMMAND = CommandSpec(("echo", "a b"), cwd="/", environment={"A": "1"}, pass_environment=("B", "C", "A"))
RECORD = JobRecord(
    uid="0x",
    spec=JobSpec(name="say", handler=COMMAND_HANDLER, command=COMMAND),
    revision=1,
    origin=Origin.FILE,
    created_at=NOW,
    updated_at=NOW,
)
RUN = Run(id="1", job="say", handler=COMMAND_HANDLER, due=NOW, ready_at=NOW, uid="0x", payload=b'{"argv": ["rm"]}')


def test_the_command_is_that_of_the_definition():
    command = command_of(RUN, RECORD, {"B": "2", "A": "theirs", "D": "4"})
    assert (command.words, command.cwd) == (["echo", "a b"], "/")
    assert command.env == {"A": "1", "B": "2"}


def test_a_text_goes_to_a_shell():
    spec = replace(RECORD.spec, command=CommandSpec(("a | b",), shell=True))
    assert command_of(RUN, replace(RECORD, spec=spec), {}).words == ["/bin/sh", "-c", "a | b"]


@pytest.mark.parametrize(
    "record",
    [
        None,
        replace(RECORD, removed_at=NOW),
        replace(RECORD, uid="0y"),
        replace(RECORD, spec=replace(RECORD.spec, command=None)),
    ],
    ids=["gone", "removed", "another of that name", "no command"],
)
def test_without_its_definition_a_run_is_given_up(record):
    with pytest.raises(GiveUp, match="'say'"):
        command_of(RUN, record, {})


async def test_while_the_store_is_away_nothing_has_failed(monkeypatch):
    monkeypatch.setattr(stored, "_ASK_AGAIN", 0.0)
    answers = [BackendUnavailable("away"), BackendUnavailable("away"), RECORD]

    async def job(name):
        assert name == "say"
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert (await Lookup(job)(RUN)).words == ["echo", "a b"]
