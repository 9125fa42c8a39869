"""The checker: each invariant, in a history that keeps it and in histories that break it."""

import pytest

from duly.model import Delivery, Fired, OutcomeKind, Pause, RunPolicy, State, shift
from duly.testing.sim import EPOCH, check, no_silent_miss, nothing_left_behind, read

from .hand import LEASE, Hand, every

ONCE = RunPolicy(delivery=Delivery.AT_MOST_ONCE)


@pytest.fixture
def hand():
    return Hand()


def _attempt(hand, run_id, fence, node="a", request=1):
    hand.claim(run_id, fence, node, request)
    hand.begin(run_id, fence, node)
    hand.end(run_id, fence, node)


class TestAGoodHistory:
    def test_a_full_life_is_fine(self, hand):
        record = hand.save()
        hand.install(1)
        [first, second] = hand.fire(record, 10, 20)
        hand.wait(10)
        _attempt(hand, first, 1)
        hand.renew(first, 1)
        hand.fail(first, 1)
        hand.wait(5)
        hand.claim(first, 2, "b")
        hand.begin(first, 2, "b")
        hand.wait(LEASE)
        hand.reap(first, 3)
        hand.settle(first, 2, stale=True)
        hand.lose(first, 3)
        _attempt(hand, first, 4)
        hand.settle(first, 4)
        hand.repeat_settlement(first, 4)
        _attempt(hand, second, 5)
        hand.settle(second, 5)
        assert hand.found(every) == []


class TestOneRecordPerInstant:
    def test_what_an_edit_took_back_may_be_made_again(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.delete(run_id, "store.save")
        hand.fire(record, 10)
        assert hand.found() == []

    def test_twice_is_once_too_often(self, hand):
        record = hand.save()
        hand.install(1)
        hand.fire(record, 10)
        hand.fire(record, 10)
        assert hand.found() == ["I1"]

    def test_what_was_purged_must_not_come_back(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.finish(run_id, State.CANCELLED)
        hand.delete(run_id, "store.purge")
        hand.fire(record, 10)
        assert "I1" in hand.found()

    def test_an_instant_is_either_run_or_skipped(self, hand):
        record = hand.save()
        hand.install(1)
        hand.fire(record, 10, until=40, state=State.SKIPPED, reason="misfire")
        hand.fire(record, 50)
        assert hand.found() == []
        hand.fire(record, 30)
        assert hand.found() == ["I1"]

    def test_another_jobs_instant_is_another_matter(self, hand):
        hand.install(1)
        hand.fire(hand.save("a"), 10)
        hand.fire(hand.save("b"), 10)
        assert hand.found() == []


class TestNothingInventedNothingEarly:
    def test_an_instant_that_is_not_in_the_schedule(self, hand):
        record = hand.save()
        hand.install(1)
        hand.fire(record, 10)
        assert hand.found(every) == []
        hand.fire(record, 25)
        assert hand.found(every) == ["I2"]

    def test_an_early_claim(self, hand):
        run_id = hand.put(delay=5)
        hand.claim(run_id, 1)
        assert hand.found() == ["I2"]

    def test_a_begin_without_a_claim(self, hand):
        run_id = hand.put()
        hand.begin(run_id, 1)
        assert hand.found() == ["I2"]

    def test_a_begin_under_a_reapers_fence(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.begin(run_id, 2)
        assert hand.found() == ["I2"]

    def test_a_clock_that_was_there_and_stepped_back_is_no_fault(self, hand):
        run_id = hand.put(delay=1)
        hand.wait(2)
        hand.history.note("it was ready here")
        hand.step_back = 10
        hand.claim(run_id, 1)
        hand.begin(run_id, 1)
        assert hand.found() == []


class TestFences:
    def test_a_fence_given_twice(self, hand):
        first, second = hand.put(), hand.put()
        hand.claim(first, 1)
        hand.claim(second, 1)
        assert hand.found() == ["I3"]

    def test_a_fence_that_goes_back(self, hand):
        first, second = hand.put(), hand.put()
        hand.claim(first, 7)
        hand.claim(second, 6)
        assert hand.found() == ["I3"]

    def test_a_repeated_request_hears_its_fence_again(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1, request=5)
        hand.claim_again(run_id, request=5)
        assert hand.found() == []

    def test_another_request_must_not(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1, request=5)
        hand.claim_again(run_id, request=6)
        assert hand.found() == ["I3"]

    def test_nor_may_a_repeat_hear_the_reapers(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1, request=5)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.claim_again(run_id, request=5)
        assert "I3" in hand.found()


class TestAuthority:
    def _reaped(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        return run_id

    def test_an_old_fence_is_refused(self, hand):
        run_id = self._reaped(hand)
        hand.renew(run_id, 1, lost=True)
        hand.settle(run_id, 1, stale=True)
        assert hand.found() == []

    def test_an_old_fence_settles(self, hand):
        hand.settle(self._reaped(hand), 1)
        assert hand.found() == ["I4"]

    def test_an_old_fence_is_renewed(self, hand):
        hand.renew(self._reaped(hand), 1)
        assert hand.found() == ["I4"]

    def test_a_claim_is_renewed_after_its_end(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.settle(run_id, 1)
        hand.renew(run_id, 1)
        assert hand.found() == ["I4"]


class TestOneFinalState:
    def test_it_ends_twice(self, hand):
        run_id = hand.put()
        hand.finish(run_id, State.CANCELLED)
        hand.finish(run_id, State.SKIPPED, "queue.promote")
        assert hand.found() == ["I5"]

    def test_it_ends_twice_alike(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.settle(run_id, 1)
        hand.finish(run_id, State.COMPLETED, "queue.settle_again")
        assert hand.found() == ["I5"]

    def test_it_is_claimed_after_its_end(self, hand):
        run_id = hand.put()
        hand.finish(run_id, State.CANCELLED)
        hand.claim(run_id, 1)
        assert "I5" in hand.found()

    def test_a_redrive_starts_a_new_life(self, hand):
        run_id = hand.put()
        _attempt(hand, run_id, 1)
        hand.settle(run_id, 1, State.FAILED, OutcomeKind.FAILED)
        hand.redrive(run_id)
        _attempt(hand, run_id, 2)
        hand.settle(run_id, 2)
        assert hand.found() == []

    def test_nothing_else_does(self, hand):
        run_id = hand.put()
        hand.finish(run_id, State.CANCELLED)
        hand.redrive(run_id, by="queue.unhold")
        assert hand.found() == ["I5"]


class TestLeaders:
    def test_epochs_in_order(self, hand):
        record = hand.save()
        hand.install(3)
        hand.fire(record, 10, epoch=3)
        hand.install(4)
        hand.fire(record, 20, epoch=3, fired=Fired.STALE_EPOCH)
        hand.fire(record, 20, epoch=4)
        assert hand.found() == []

    def test_an_old_leader_plans(self, hand):
        record = hand.save()
        hand.install(3)
        hand.install(4)
        hand.fire(record, 10, epoch=3)
        assert hand.found() == ["I6"]

    def test_an_epoch_goes_back(self, hand):
        hand.install(4)
        hand.install(3)
        assert hand.found() == ["I6"]

    def test_shards_have_leaders_of_their_own(self, hand):
        record = hand.save()
        hand.install(4)
        hand.install(1, shard="other")
        hand.fire(record, 10, epoch=4)
        assert hand.found() == []


class TestRepetition:
    def test_an_unexplained_one(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.begin(run_id, 1)
        hand.claim(run_id, 2, "b", request=1)
        hand.begin(run_id, 2, "b")
        assert hand.found() == ["I7"]

    def test_the_same_claim_begun_twice(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.begin(run_id, 1)
        hand.begin(run_id, 1)
        assert hand.found() == ["I7"]

    def test_a_begin_after_the_end(self, hand):
        run_id = hand.put()
        _attempt(hand, run_id, 1)
        hand.settle(run_id, 1)
        hand.claim(run_id, 2)
        hand.begin(run_id, 2)
        assert "I7" in hand.found()

    def test_a_release_explains_one(self, hand):
        run_id = hand.put()
        _attempt(hand, run_id, 1)
        hand.release(run_id, 1)
        _attempt(hand, run_id, 2)
        assert hand.found() == []

    def test_a_begin_that_was_asleep_until_after_its_lapse(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.lose(run_id, 2)
        hand.claim(run_id, 3, "b")
        hand.begin(run_id, 3, "b")
        hand.begin(run_id, 1)
        assert hand.found() == []

    def test_two_that_are_open_at_once(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.begin(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.lose(run_id, 2)
        hand.claim(run_id, 3)
        hand.begin(run_id, 3)
        assert hand.found() == []
        hand.claim(run_id, 4)
        hand.begin(run_id, 4)
        assert hand.found() == ["I7"]


class TestPauses:
    def _paused(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.wait(10)
        hand.save(revision=2, paused=Pause(hand.now))
        return record, run_id

    def test_nothing_is_planned(self, hand):
        record, _ = self._paused(hand)
        hand.fire(record, 20)
        assert hand.found() == ["I8"]

    def test_nothing_is_claimed(self, hand):
        _, run_id = self._paused(hand)
        hand.claim(run_id, 1)
        assert hand.found() == ["I8"]

    def test_what_runs_may_end_and_be_reaped(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.wait(10)
        hand.claim(run_id, 1)
        hand.save(revision=2, paused=Pause(hand.now))
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.settle(run_id, 2, State.FAILED, OutcomeKind.LOST)
        assert hand.found() == []

    def test_after_resuming_all_goes_on(self, hand):
        record, run_id = self._paused(hand)
        hand.save(revision=3)
        hand.claim(run_id, 1)
        hand.fire(record, 20)
        assert hand.found() == []

    def test_a_removed_job_is_not_planned(self, hand):
        record = hand.save()
        hand.install(1)
        hand.remove("report")
        assert hand.found() == []
        hand.fire(record, 10)
        assert hand.found() == ["I8"]

    def test_nor_is_a_retired_one(self, hand):
        record = hand.save(retired_at=hand.now)
        hand.install(1)
        hand.fire(record, 10)
        assert hand.found() == ["I8"]


class TestGroups:
    def test_as_many_as_there_are_places(self, hand):
        runs = [hand.put(group="g", limit=2) for _ in range(3)]
        for fence, run_id in enumerate(runs[:2], start=1):
            hand.join(run_id)
            hand.claim(run_id, fence)
        hand.settle(runs[0], 1)
        hand.join(runs[2])
        hand.claim(runs[2], 3)
        assert hand.found() == []

    def test_one_member_too_many(self, hand):
        for _ in range(2):
            hand.join(hand.put(group="g"))
        assert hand.found() == ["I9"]

    def test_one_claim_too_many(self, hand):
        for fence in (1, 2):
            hand.claim(hand.put(group="g"), fence)
        assert hand.found() == ["I9"]

    def test_an_expired_claim_still_counts(self, hand):
        first, second = hand.put(group="g"), hand.put(group="g")
        hand.claim(first, 1)
        hand.wait(LEASE * 2)
        hand.claim(second, 2)
        assert hand.found() == ["I9"]


class TestAtMostOnce:
    def test_a_second_begin(self, hand):
        run_id = hand.put(policy=ONCE)
        _attempt(hand, run_id, 1)
        hand.fail(run_id, 1)
        _attempt(hand, run_id, 2)
        assert hand.found() == ["I11"]

    def test_a_claim_after_a_lapse(self, hand):
        run_id = hand.put(policy=ONCE)
        hand.claim(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.lose(run_id, 2)
        hand.claim(run_id, 3)
        assert hand.found() == ["I11", "I12"]

    def test_a_release_before_the_begin(self, hand):
        run_id = hand.put(policy=ONCE)
        hand.claim(run_id, 1)
        hand.release(run_id, 1)
        _attempt(hand, run_id, 2)
        assert hand.found() == []

    def test_a_redrive_is_the_operators_word(self, hand):
        run_id = hand.put(policy=ONCE)
        hand.claim(run_id, 1)
        hand.begin(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.settle(run_id, 2, State.LOST, OutcomeKind.LOST)
        hand.redrive(run_id)
        _attempt(hand, run_id, 3)
        hand.settle(run_id, 3)
        assert hand.found() == []

    @pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED])
    def test_what_was_lost_is_called_something_else(self, hand, state):
        run_id = hand.put(policy=ONCE)
        hand.claim(run_id, 1)
        hand.wait(LEASE)
        hand.reap(run_id, 2)
        hand.settle(run_id, 2, state, OutcomeKind.LOST)
        assert hand.found() == ["I12"]


class TestNoSilentMiss:
    def _missed(self, hand, until):
        facts = read(hand.history)
        return [violation.message for violation in no_silent_miss(facts, every, shift(EPOCH, until))]

    def test_every_instant_has_its_record(self, hand):
        record = hand.save()
        hand.install(1)
        hand.fire(record, 10, 20)
        hand.fire(record, 30, until=50, state=State.SKIPPED)
        assert self._missed(hand, 59) == []

    def test_one_is_missing(self, hand):
        record = hand.save()
        hand.install(1)
        hand.fire(record, 10, 30)
        assert self._missed(hand, 35) == ["2026-03-01T09:00:20.000000Z has no record"]

    def test_what_was_taken_back_is_missing(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.delete(run_id, "store.save")
        assert len(self._missed(hand, 15)) == 1

    def test_what_was_purged_is_not(self, hand):
        record = hand.save()
        hand.install(1)
        [run_id] = hand.fire(record, 10)
        hand.delete(run_id, "store.purge")
        assert self._missed(hand, 15) == []

    def test_a_paused_job_misses_nothing(self, hand):
        hand.save()
        hand.save(revision=2, paused=Pause(hand.now))
        assert self._missed(hand, 60) == []

    def test_a_resumed_one_must_account_for_its_pause(self, hand):
        record = hand.save()
        hand.install(1)
        hand.save(revision=2, paused=Pause(hand.now))
        hand.wait(25)
        hand.save(revision=3)
        assert len(self._missed(hand, 29)) == 2
        hand.fire(record, 10, until=20, state=State.SKIPPED, reason="paused")
        assert self._missed(hand, 29) == []

    def test_a_removed_job_ends_with_its_removal(self, hand):
        hand.save()
        hand.wait(15)
        hand.remove("report")
        assert len(self._missed(hand, 60)) == 1

    def test_a_new_schedule_counts_from_its_saving(self, hand):
        record = hand.save(every=10)
        hand.install(1)
        hand.fire(record, 10, 20)
        hand.wait(25)
        changed = hand.save(every=7, revision=2)
        hand.fire(changed, 28, 35)
        assert self._missed(hand, 40) == []
        assert len(self._missed(hand, 45)) == 1


class TestNothingLeftBehind:
    def _left(self, hand, **options):
        found = nothing_left_behind(hand.history, read(hand.history), patience=30, **options)
        return [violation.invariant for violation in found]

    def _later(self, hand, seconds=60):
        hand.wait(seconds)
        hand.history.note("quiet")

    def test_all_ended(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        hand.settle(run_id, 1)
        self._later(hand)
        assert self._left(hand) == []
        assert list(nothing_left_behind(Hand().history, [], patience=30)) == []

    def test_a_ready_run_that_nobody_takes(self, hand):
        hand.put()
        self._later(hand, 20)
        assert self._left(hand) == []
        self._later(hand)
        assert self._left(hand) == ["L2"]
        assert self._left(hand, paused_queues=frozenset({"default"})) == []

    def test_a_run_whose_time_has_not_come(self, hand):
        hand.put(delay=1000)
        self._later(hand)
        assert self._left(hand) == []

    def test_a_lease_that_ran_out(self, hand):
        run_id = hand.put()
        hand.claim(run_id, 1)
        self._later(hand, 40)
        assert self._left(hand) == []
        self._later(hand)
        assert self._left(hand) == ["L4"]

    def test_a_run_held_for_an_empty_group(self, hand):
        member, held = hand.put(group="g"), hand.put(group="g", delay=-100)
        hand.join(member)
        hand.claim(member, 1)
        hand.hold(held, "group:g")
        assert self._left(hand) == []
        hand.settle(member, 1)
        assert self._left(hand) == ["L4"]

    def test_a_run_held_for_a_job_that_goes_on(self, hand):
        hand.save("mail", paused=Pause(hand.now))
        hand.hold(hand.put("mail", delay=-100), "job:mail")
        assert self._left(hand) == []
        hand.save("mail", revision=2)
        assert self._left(hand) == ["L4"]

    def test_a_run_held_for_ever(self, hand):
        hand.hold(hand.put(delay=-100), "handler:mail")
        assert self._left(hand) == ["L4"]


class TestStories:
    def test_a_violation_tells_what_happened_to_its_run(self, hand):
        run_id, other = hand.put(), hand.put()
        hand.claim(other, 1)
        hand.claim(run_id, 2, "node-7")
        hand.begin(run_id, 2, "node-7")
        hand.wait(LEASE)
        hand.reap(run_id, 3)
        hand.settle(run_id, 2, node="node-7")
        [violation] = check(read(hand.history))
        assert (violation.invariant, violation.subject) == ("I4", run_id)
        told = str(violation)
        words = ["queue.put made it", "claimed by request 1 under fence 2", "handler begins under fence 2"]
        words += ["fence 2 lapsed", "reaped under fence 3", "(succeeded → completed) applied", "ended it as completed"]
        positions = [told.index(word) for word in words]
        assert positions == sorted(positions)
        assert "node-7" in told
        assert other not in told
