"""The audit log: one chain whoever writes it; damage is found, written down, and stops nobody."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from tests.scheduler.audit_damage import rewrite

from duly import Scheduler
from duly.errors import BackendUnavailable
from duly.scheduler.audit import LOG, Audit
from duly.scheduler.audit_check import DAMAGE

NOW = datetime(2027, 1, 1, tzinfo=UTC)
KEY = "a key of the tests, long enough"


@pytest.fixture
async def store(url):
    async with Scheduler(url).client() as scheduler:
        yield (await scheduler.opened()).backend.store


async def fill(audit: Audit, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await audit.record("ada", "pause", f"job {number}", NOW)


async def actions(store) -> list[str]:
    return [each.deed.action if each.deed else "?" for each in await Audit(store).read(0, 100)]


async def record(audit: Audit, target: str = "job next") -> int:
    """An action is written down within a bounded time, whatever the log looks like."""
    async with asyncio.timeout(10):
        return await audit.record("ada", "resume", target, NOW)


async def test_several_writers_make_one_chain(store):
    writers = [Audit(store) for _ in range(4)]
    await asyncio.gather(*(fill(writer, 10) for writer in writers))
    report = await Audit(store).verify()
    assert (report.entries, report.head.sequence, report.findings) == (40, 40, ())


async def test_an_entry_without_a_key_is_as_0_1_0_writes_it(store):
    """Its processes bind their next entry to the hash of what they can read of this one."""
    await record(Audit(store))
    [entry] = await store.read(LOG, 0, 10)
    assert list(json.loads(entry.value)) == ["actor", "action", "target", "at", "before", "after", "previous"]


# --- the store lost the tail


@pytest.mark.parametrize("left", [3, 1, 0])
async def test_after_the_tail_was_lost_actions_are_recorded_after_a_finding(url, store, left):
    audit = Audit(store)
    await fill(audit, 5)
    await rewrite(url, store, lambda values: values[:left])
    assert await record(audit) == left + 2
    entries = await audit.read(left, 10)
    assert [each.deed.action for each in entries] == [DAMAGE, "resume"]
    assert entries[0].deed.target == f"entry 5 is missing: the log ends at {left}"
    assert await record(audit) == left + 3  # and it is said once
    report = await Audit(store).verify()
    assert report.findings == (f"entry {left + 1} records damage: entry 5 is missing: the log ends at {left}",)


async def test_a_loss_is_noticed_also_by_who_writes_after_others_have(url, store):
    audit = Audit(store)
    await fill(audit, 5)
    await rewrite(url, store, lambda values: values[:3])
    await store.put("audit-head", "main", None)  # the loss took it, too
    await fill(Audit(store), 4, first=10)
    await record(audit)
    assert (await actions(store))[-2:] == [DAMAGE, "resume"]
    assert "entry 5 was changed" in (await Audit(store).verify()).findings[0]


async def test_a_new_process_notices_a_loss_by_the_note_in_the_store(url, store):
    await fill(Audit(store), 5)
    await rewrite(url, store, lambda values: values[:3])
    assert (await Audit(store).verify()).findings == ("entry 5 is missing: the log ends at 3",)
    await record(Audit(store))
    assert await actions(store) == ["pause"] * 3 + [DAMAGE, "resume"]


async def test_a_log_that_others_never_leave_alone_is_given_up_after_a_while():
    class Busy:
        async def append(self, log, entries, expect=None, keep=None):
            return 0 if expect is None else None

        async def get(self, kind, key):
            return None

    with pytest.raises(BackendUnavailable, match="try again"):
        await record(Audit(Busy()))


# --- entries that are not what was written


async def test_a_changed_entry_is_found(url, store):
    await fill(Audit(store), 4)
    await rewrite(url, store, lambda values: [values[0], values[1].replace(b"job 1", b"job X"), *values[2:]])
    assert (await Audit(store).verify()).findings == ("entry 2 was changed, or entry 3 was not written by Duly",)


async def test_a_change_of_the_last_entry_is_found_by_what_its_writer_remembers(url, store):
    await fill(Audit(store), 2)
    await rewrite(url, store, lambda values: [values[0], values[1].replace(b"job 1", b"job X")])
    assert (await Audit(store).verify()).findings == ("entry 2 was changed: its writer remembers another hash",)
    await record(Audit(store))
    assert await actions(store) == ["pause", "pause", DAMAGE, "resume"]


async def test_removed_entries_are_found(url, store):
    audit = Audit(store)
    await fill(audit, 6)
    await rewrite(url, store, lambda values: [*values[:2], *values[4:]])
    findings = (await Audit(store).verify()).findings
    assert findings == (
        "entry 2 was changed, or entry 3 was not written by Duly",
        "entry 6 is missing: the log ends at 4",
    )


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"null", b"[]", b'{"actor": 1}', b"{" * 5000], ids=str)
async def test_a_garbled_entry_is_a_finding_and_hides_no_other(url, store, garbage):
    audit = Audit(store)
    await fill(audit, 3)
    await rewrite(url, store, lambda values: [values[0], garbage, values[2]])
    assert [each.deed is None for each in await audit.read(0, 10)] == [False, True, False]
    findings = (await Audit(store).verify()).findings
    assert findings == ("entry 2 cannot be read", "entry 2 was changed, or entry 3 was not written by Duly")
    await record(audit)
    await rewrite(url, store, lambda values: [*values[:-1], garbage])
    await record(Audit(store))
    assert (await actions(store))[-2:] == [DAMAGE, "resume"]


async def test_a_forged_entry_is_a_finding_when_it_is_checked_and_when_somebody_writes_after_it(store):
    audit = Audit(store)
    await fill(audit, 2)
    forged = {"actor": "eve", "action": "x", "target": "y", "at": NOW.isoformat(), "previous": "0" * 64}
    await store.append(LOG, [json.dumps(forged).encode()])
    assert (await Audit(store).verify()).findings == ("entry 2 was changed, or entry 3 was not written by Duly",)
    await record(audit)
    entries = await audit.read(3, 10)
    assert [each.deed.action for each in entries] == [DAMAGE, "resume"]


async def test_an_unreadable_note_of_the_head_is_a_finding(store):
    await fill(Audit(store), 2)
    await store.put("audit-head", "main", b"\xff")
    assert (await Audit(store).verify()).findings == ("the note of the log's end cannot be read",)
    await record(Audit(store))
    assert await actions(store) == ["pause", "pause", DAMAGE, "resume"]


async def test_many_findings_are_told_up_to_a_bound(url, store):
    await fill(Audit(store), 60)
    await rewrite(url, store, lambda values: [b"?"] * len(values))
    report = await Audit(store).verify()
    assert (report.entries, len(report.findings)) == (60, 20)


# --- a log that was rewritten as a whole


async def forge_all(url: str, store) -> None:
    """Another log of the same length, made with Duly's own code by somebody who may write the store."""
    await rewrite(url, store, lambda values: [])
    await store.put("audit-head", "main", None)
    await fill(Audit(store), 3, first=100)


async def test_a_rewritten_log_is_found_by_the_hash_that_was_noted(url, store):
    await fill(Audit(store), 3)
    noted = (await Audit(store).verify()).head.hash
    await fill(Audit(store), 2, first=3)
    report = await Audit(store).verify(noted)
    assert (report.findings, report.expected_at, report.head.sequence) == ((), 3, 5)
    await forge_all(url, store)
    assert (await Audit(store).verify()).findings == ()
    [finding] = (await Audit(store).verify(noted)).findings
    assert f"no entry has the hash {noted}" in finding


async def test_damage_that_was_recorded_before_the_noted_hash_is_known(url, store):
    audit = Audit(store)
    await fill(audit, 3)
    await rewrite(url, store, lambda values: values[:1])
    await record(audit)
    noted = (await Audit(store).verify()).head.hash
    report = await Audit(store).verify(noted)
    assert report.findings == ()
    assert report.known == ("entry 2 records damage: entry 3 is missing: the log ends at 1",)


async def test_with_a_key_a_rewritten_log_is_found_without_a_noted_hash(url, store):
    await fill(Audit(store, KEY), 3)
    report = await Audit(store, KEY).verify()
    assert (report.findings, report.authenticated) == ((), 3)
    await forge_all(url, store)
    [finding] = (await Audit(store, KEY).verify()).findings
    assert "no entry was written with this key" in finding


async def test_with_a_key_an_entry_of_somebody_without_it_is_found(store):
    await fill(Audit(store), 1)  # before there was a key
    await fill(Audit(store, KEY), 2)
    assert (await Audit(store, KEY).verify()).findings == ()
    await fill(Audit(store), 1)
    await fill(Audit(store, "another key, long enough"), 1)
    findings = (await Audit(store, KEY).verify()).findings
    assert [finding.partition(" was ")[0] for finding in findings] == ["entry 4", "entry 5"]
    assert "without the key" in findings[0]
    assert "its code is wrong" in findings[1]


async def test_without_the_key_the_chain_alone_is_checked(store):
    await fill(Audit(store, KEY), 2)
    report = await Audit(store).verify()
    assert (report.findings, report.authenticated) == ((), 0)


async def test_what_is_authenticated_survives_every_value_that_an_entry_may_hold(store):
    audit = Audit(store, KEY)
    odd = {"é\u2028": [1e300, -0.0, 2**53, None, True, "\U0001f600", "\udcff"], "nested": {"a": {}}, "float": 0.1}
    await audit.record("ad\udcffa", "define", "job ü", NOW, odd, [odd])
    assert (await Audit(store, KEY).verify()).findings == ()
