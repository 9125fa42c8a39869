"""Handlers that raise, return and report what nobody should. Imported by tests and by the processes they start."""

import asyncio
from decimal import Decimal

from duly import Context, GiveUp, Retry
from tests.hostile.values import Loud, Mute, cyclic, deep


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit("not even this")


class Wordy(Exception):
    def __str__(self):
        return "x" * 3_000_000


class NotText(Exception):
    def __str__(self):
        return 17  # noqa: PLE0307  # the point


def _raised(make):
    def handler(ctx: Context) -> None:
        raise make()

    return handler


def _returned(make):
    def handler(ctx: Context) -> object:
        return make()

    return handler


def _reported(*arguments):
    def handler(ctx: Context) -> str:
        for _ in range(3):
            ctx.progress(*arguments)
        return "reported"

    return handler


def _altered(exc, **attributes):
    for name, value in attributes.items():
        setattr(exc, name, value)
    return exc


def _grouped():
    return ExceptionGroup("\ud800", [ValueError(f"\udc80{number}") for number in range(1000)])


def _chained():
    first, second = ValueError("\ud800"), KeyError("\x00")
    first.__cause__, second.__cause__ = second, first
    first.add_note("\udcff" * 10_000)
    return first


def _recursing():
    return _recursing()


RAISING = {
    "surrogate": _raised(lambda: ValueError("a\ud800b")),
    "nul": _raised(lambda: ValueError("a\x00b")),
    "unspeakable": _raised(Unspeakable),
    "wordy": _raised(Wordy),
    "not_text": _raised(NotText),
    "odd_class": _raised(type("Odd" * 10_000, (Exception,), {})),
    "loud": _raised(lambda: ValueError(Loud("loud"))),
    "mute": _raised(lambda: ValueError(Mute())),
    "group": _raised(_grouped),
    "chained": _raised(_chained),
    "recursion": _raised(_recursing),
    "give_up_exception": _raised(lambda: GiveUp(ValueError("a\ud800b"))),
    "give_up_object": _raised(lambda: GiveUp(Mute())),
    "retry_negative": _raised(lambda: Retry(after=-5)),
    "retry_nan": _raised(lambda: Retry(after=float("nan"))),
    "retry_altered": _raised(lambda: _altered(Retry(after=1), after=-5)),
    "retry_object": _raised(lambda: _altered(Retry(after=1), after=Mute())),
    "stop_iteration": _raised(StopIteration),
    "generator_exit": _raised(GeneratorExit),
    "system_exit": _raised(lambda: SystemExit(Mute())),
    "keyboard_interrupt": _raised(KeyboardInterrupt),
    "cancelled": _raised(asyncio.CancelledError),
    "timeout": _raised(TimeoutError),
    "memory_error": _raised(MemoryError),
}
RETURNING = {
    "returns_surrogate": _returned(lambda: "a\ud800b"),
    "returns_nan": _returned(lambda: float("nan")),
    "returns_cyclic": _returned(cyclic),
    "returns_deep": _returned(deep),
    "returns_object": _returned(object),
    "returns_mute": _returned(Mute),
    "returns_huge": _returned(lambda: "x" * 10_000_000),
    "returns_huge_number": _returned(lambda: 10**5000),
    "returns_bytes": _returned(lambda: b"\xff" * 100),
    "returns_odd_keys": _returned(lambda: {"\ud800": {1: {Mute(): 1}}}),
    "returns_exception": _returned(lambda: ValueError("a\ud800b")),
    "returns_coroutine": _returned(lambda: (each for each in ())),
}
REPORTING = {
    "reports_nan": _reported(float("nan")),
    "reports_infinity": _reported(1, float("inf")),
    "reports_decimal": _reported(Decimal("0.5"), Decimal("NaN")),
    "reports_object": _reported(object(), object(), object()),
    "reports_surrogate": _reported(1, 2, "a\ud800\x00b" * 10_000),
    "reports_mute": _reported(1, 2, Mute()),
    "reports_loud": _reported(1, 2, Loud("loud")),
}
EVERY = RAISING | RETURNING | REPORTING

# Of these a module-level function is needed: processes import them by name.
raise_surrogate, raise_wordy, raise_unspeakable = RAISING["surrogate"], RAISING["wordy"], RAISING["unspeakable"]
