"""Schedules with calendars and unions as 0.1.0 reads them: as schedules of code, which it cannot compute."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import pytest

from duly import Calendar, Cron, Every
from duly.model import JobRecord, JobSpec, Origin
from duly.rules.schedules import bind
from tests.stores.test_rolling import WHEEL

NOW = datetime(2027, 3, 1, tzinfo=UTC)
READ = """
import json, sys, msgspec, duly
from duly.errors import InvalidSchedule
from duly.model import JobRecord
from duly.runtime.planner import schedule_of

assert duly.__version__ == "0.1.0"
found = []
for codec in (msgspec.json, msgspec.msgpack):
    record = codec.decode(bytes.fromhex(sys.stdin.readline()), type=JobRecord)
    try:
        schedule_of(record, lambda _: None)
    except InvalidSchedule as exc:
        found.append([type(record.spec.schedule).__name__, record.spec.schedule.kind, str(exc)])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "schedule",
    [
        Cron("0 9 * * *").excluding(Calendar.weekends(), Calendar.dates(labels={"2027-12-25": "Christmas"}, name="de")),
        Cron("0 9 * * 1-5", jitter=3) | Every(3600, jitter=3),
    ],
)
def test_0_1_0_reads_the_definition_and_does_not_plan_it(schedule):
    spec = JobSpec(name="x", handler="x", schedule=bind(schedule, name="x", timezone="UTC"), expect_every=60.0)
    record = JobRecord("uid", spec, 1, Origin.CODE, NOW, NOW)
    given = "".join(codec.encode(record).hex() + "\n" for codec in (msgspec.json, msgspec.msgpack))
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(WHEEL)},
    )
    found = json.loads(done.stdout)
    assert [(kind, words) for kind, words, _ in found] == [("CustomSpec", spec.schedule.kind)] * 2
    assert all("only" in error for _, _, error in found)
