"""The file of an export: complete or refused, whatever has happened to it."""

import gzip
import io
import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from duly.backends.memory.backend import open_url
from duly.model import Attempt, Failure, JobRecord, JobSpec, Origin, OutcomeKind, Progress, Run, State
from duly.model.job import CommandSpec, EverySpec
from duly.model.transfer import JobEntry, LogEntry, QueueEntry, RunEntry, SettingEntry, ValueEntry
from duly.moving import InvalidExport, import_file
from duly.moving.file_format import FORMAT, VERSION, Header, Reader, Writer
from duly.moving.importing import verified
from duly.ports import Opening

NOW = datetime(2026, 11, 18, 9, 0, 0, 123456, UTC)
AWKWARD = 'a\x00b\n"\\ \u2028 \U0001f600 ' + "x" * 5000
RUN = Run(
    id="1",
    job="mail",
    handler="mail",
    due=NOW,
    ready_at=NOW,
    payload=b"\xff\x00",
    headers={AWKWARD: AWKWARD},
    state=State.FAILED,
    reason=AWKWARD,
    created_at=NOW,
    finished_at=NOW,
    failure=Failure("ValueError", AWKWARD, AWKWARD),
    progress=Progress(0.1, None, AWKWARD),
    result=bytes(range(256)),
)
RECORDS = [
    SettingEntry("settings", b"{}"),
    JobEntry(
        JobRecord(
            uid="u",
            spec=JobSpec(
                name="report",
                handler="report",
                schedule=EverySpec(timedelta(seconds=0.1), start_at=NOW),
                command=CommandSpec(("echo", AWKWARD), environment={"A": "b"}),
            ),
            revision=3,
            origin=Origin.FILE,
            created_at=NOW,
            updated_at=NOW,
            cursor=NOW,
            job_file="jobs.toml",
        )
    ),
    QueueEntry("slow"),
    ValueEntry("kind", AWKWARD, b"\x00\xff", 7),
    RunEntry(RUN, (Attempt(1, 2**52, "n", NOW, NOW, OutcomeKind.FAILED, Failure("E", AWKWARD, "")),)),
    LogEntry("audit", 1, NOW, b"\n{}"),
]


def header(**fields):
    values = {"format": FORMAT, "version": VERSION, "duly": "9", "namespace": "duly", "source": "memory://"}
    return Header(**values | {"at": NOW, "fence": 5, "ended": {}} | fields)


def written(records=RECORDS, **fields) -> bytes:
    out = io.BytesIO()
    writer = Writer(out, header(**fields))
    for record in records:
        writer.write([record])
    writer.end([])
    return out.getvalue()


def read(data: bytes) -> list:
    return list(Reader(io.BytesIO(data), "backup").records())


def test_what_was_written_is_read():
    data = written()
    assert read(data) == RECORDS
    assert verified(io.BytesIO(data), "backup") == header()
    assert Reader(io.BytesIO(data), "backup").header.fence == 5


def test_a_file_without_records_is_complete():
    assert read(written([])) == []


def test_every_cut_is_noticed():
    data = written()
    for length in range(len(data)):
        with pytest.raises(InvalidExport):
            read(data[:length])


def test_every_line_that_is_missing_doubled_or_moved_is_noticed():
    lines = gzip.decompress(written()).splitlines(keepends=True)
    for place in range(1, len(lines) - 1):
        for changed in (
            lines[:place] + lines[place + 1 :],
            lines[:place] + lines[place : place + 1] + lines[place:],
            [lines[0], *lines[place : place + 1], *lines[1:place], *lines[place + 1 :]] if place > 1 else lines[:-1],
        ):
            with pytest.raises(InvalidExport):
                read(gzip.compress(b"".join(changed)))


def test_changed_bytes_are_noticed_unless_they_mean_nothing():
    data, rng = written(), random.Random(1)
    refused = 0
    for _ in range(200):
        changed = bytearray(data)
        place = rng.randrange(10, len(data))
        changed[place] ^= 1 << rng.randrange(8)
        try:
            assert read(bytes(changed)) == RECORDS  # a bit that fills up a byte
        except InvalidExport:
            refused += 1
    assert refused > 190


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", gzip.compress(b"", mtime=0), gzip.compress(b"hello\n", mtime=0), gzip.compress(b"[1]\n", mtime=0)],
)
def test_other_files_are_not_exports(data):
    with pytest.raises(InvalidExport, match="backup is"):
        read(data)


def test_lines_after_the_end_are_refused():
    lines = gzip.decompress(written())
    with pytest.raises(InvalidExport, match="more lines"):
        read(gzip.compress(lines + b"{}\n"))


def test_a_newer_format_is_refused_with_its_version():
    lines = gzip.decompress(written()).splitlines(keepends=True)
    newer = json.loads(lines[0]) | {"version": 2, "duly": "7.0"}
    with pytest.raises(InvalidExport, match=r"version 2 .* knows version 1.*7\.0"):
        read(gzip.compress(json.dumps(newer).encode() + b"\n" + b"".join(lines[1:])))


def test_an_unknown_kind_is_refused_by_its_name():
    lines = gzip.decompress(written()).splitlines(keepends=True)
    with pytest.raises(InvalidExport, match="kind 'flow' in line 2"):
        read(gzip.compress(b"".join([lines[0], b'{"type":"flow","id":"1"}\n', *lines[1:]])))


async def test_a_damaged_stream_never_becomes_a_working_store():
    data = written()
    backend = open_url("memory://damaged", Opening(migrates=False))
    with pytest.raises(InvalidExport, match="incomplete"):
        await import_file(
            backend, io.BytesIO(gzip.compress(b"".join(gzip.decompress(data).splitlines(True)[:-1]))), "-"
        )
    assert await backend.store.mark() is not None
    done = await import_file(backend, io.BytesIO(data), "-")
    assert done.counts == {"job": 1, "log": 1, "queue": 1, "run": 1, "setting": 1, "value": 1}
    assert await backend.store.mark() is None
    assert await backend.store.run("1") == RUN


def test_a_line_that_is_nested_deeply_is_refused():
    lines = gzip.decompress(written()).splitlines(keepends=True)
    deep = b'{"type":"flow","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    with pytest.raises(InvalidExport):
        read(gzip.compress(lines[0] + deep + b"".join(lines[1:])))
    with pytest.raises(InvalidExport):
        read(gzip.compress(deep))
