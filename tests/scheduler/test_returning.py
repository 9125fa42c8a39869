"""What a handler returns is what its annotation promises: anything else is a failure, recorded and never repeated."""

import functools

import pytest

from duly import Context, ResultExpired, Retry, RunFailed, Scheduler, State
from duly.errors import ReturnMismatch
from duly.model.event import AfterCommitFailed


class Odd:
    pass


def returning(kind, value, **options):
    scheduler = Scheduler("memory://")
    calls = []

    async def work():
        calls.append(1)
        return value

    work.__annotations__ = {} if kind is None else {"return": kind}
    return scheduler, scheduler.job(**options)(work), calls


WRONG = [(int, "5"), (int, None), (type(None), 5), (list[int], ["a"]), (dict[str, int], {"a": None}), (int, Odd())]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize(("kind", "value"), WRONG)
async def test_a_wrong_value_fails_the_run_once(kind, value, delivery):
    scheduler, handle, calls = returning(kind, value, delivery=delivery)
    async with scheduler:
        run = await handle.submit()
        with pytest.raises(RunFailed, match=r"ReturnMismatch: work returned .* but is annotated `-> ") as caught:
            await run.result(timeout=30)
        assert (await run.get()).state is State.FAILED
        assert (await run.get()).result is None
    assert caught.value.error_type == "ReturnMismatch"
    assert calls == [1]


RIGHT = [(int, 5), (float, 5), (None, Odd), (int | None, None), (list[int], (1, 2)), (object, 5), (None, None)]


@pytest.mark.parametrize(("kind", "value"), RIGHT)
async def test_a_value_that_can_be_read_back_is_right(kind, value):
    scheduler, handle, _ = returning(kind, value)
    async with scheduler:
        assert (await (await handle.submit()).wait(timeout=30)).state is State.COMPLETED


@pytest.mark.parametrize(("kind", "value"), [(Odd, Odd()), (float, float("nan")), (None, Odd())])
async def test_a_right_value_that_cannot_be_stored_leaves_the_run_completed(kind, value):
    scheduler, handle, _ = returning(kind, value)
    async with scheduler:
        with pytest.raises(ResultExpired, match="result not kept"):
            await (await handle.submit()).result(timeout=30)


async def test_a_hook_may_ask_for_a_retry_and_sees_the_error():
    seen = []

    def on_error(run, job, exc):
        seen.append(type(exc))
        return Retry(0) if run.attempt == 1 else None

    scheduler, handle, calls = returning(int, "5", on_error=on_error)
    async with scheduler:
        with pytest.raises(RunFailed):
            await (await handle.submit()).result(timeout=30)
    assert seen == [ReturnMismatch, ReturnMismatch]
    assert calls == [1, 1]


async def test_a_committed_transaction_stays_completed_and_the_mistake_is_reported(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db")
    told = []
    scheduler.subscribe(told.append, AfterCommitFailed)

    @scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            await tx.execute("CREATE TABLE IF NOT EXISTS paid (run TEXT)")
            await tx.execute("INSERT INTO paid VALUES (?)", (ctx.run_id,))
        return "paid"  # type: ignore[return-value]

    async with scheduler:
        run = await pay.submit()
        assert (await run.wait(timeout=30)).state is State.COMPLETED
    assert [event.failure.type for event in told] == ["ReturnMismatch"]


async def test_a_coroutine_that_nobody_awaits_is_a_failure():
    scheduler = Scheduler("memory://")

    async def real() -> int:
        return 5

    def decorated(*args, **kwargs):
        return real(*args, **kwargs)

    functools.update_wrapper(decorated, real)
    handle = scheduler.job(name="work")(decorated)
    async with scheduler:
        with pytest.raises(RunFailed, match="returned a coroutine"):
            await (await handle.submit()).result(timeout=30)


async def test_a_stored_result_that_no_longer_fits_is_an_error_of_duly():
    scheduler, handle, _ = returning(str, "five")
    async with scheduler:
        run = await handle.submit()
        await run.wait(timeout=30)
        # A deploy has changed the code since.
        handle.function.__annotations__["return"] = int
        scheduler._registry._signatures.clear()
        scheduler._registry._by_function.clear()
        with pytest.raises(ReturnMismatch, match="the stored result of work does not fit `-> int`"):
            await run.result(timeout=30)
