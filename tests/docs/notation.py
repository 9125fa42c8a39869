"""What a page shows, compared with what was printed.

Blanks count as one. `…` stands for anything within a line, and alone in a line for any number of lines. Some things
differ each time and are matched by their kind: ids (the same id must stay the same, and can be used in later commands),
times near to now, distances from now, milliseconds, sizes, versions (also of Redis for Valkey), and numbers of five
digits and more. A time that is far from now must be the one that the page shows.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_SPAN = r"\d+(?:\.\d+)?(?:e[+-]\d+)? (?:ms|s|min|h|days)(?: \d+ min)?"
_NEAR = timedelta(days=100)

# Kinds of things that differ, by what a page shows; the second pattern is what may be printed instead.
_BOUND = (
    r"\b[0-9a-f]{26}(?:-\d{8}T\d{6}\.\d{6})?\b",  # a run
    r"\b[0-9a-f]{64}\b",  # a hash
    r"\b[0-9a-f]{32}\b",  # a trace
    r"(?<![0-9a-f-])(?=[0-9a-f]*\d)[0-9a-f]{12}(?![0-9a-f])",  # a token
)
_TIMES = (
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?",
    r"\b\d\d-\d\d \d\d:\d\d:\d\d\b",
    r"\b\d\d:\d\d:\d\d\b",
)
_VARYING = (
    (r"(?<=_)[\w-]{43}(?![\w-])", r"[\w-]{43}"),  # the secret of a token
    (rf"\bin {_SPAN}|\b{_SPAN} ago\b", rf"(?:in {_SPAN}|{_SPAN} ago|now)"),
    (rf"\bafter {_SPAN}", rf"after {_SPAN}"),
    (rf"\b{_SPAN} late\b", rf"{_SPAN} late"),
    (r"\b\d+(?:\.\d+)? ms\b", _SPAN),
    (r"\b\d+(?:\.\d+)? [KMG]iB\b", r"\d+(?:\.\d+)? (?:bytes|[KMG]iB)"),
    (r"\b(?:Redis|Valkey) \d[\d.]+", r"(?:Redis|Valkey) \d[\d.]+"),
    (r"\bPostgreSQL \d[\d.]+", r"PostgreSQL \d\S+"),
    (r"\b\d+\.\d+\.\d+(?:\.\w+)*\b", r"\d+\.\d+[\w.]*"),  # another version
    (r"(?<![\w.])\d+\.\d{3}(?![\w.])", r"\d+\.\d+"),
    (r"\bCES?T\b", r"CES?T"),
    (r"\b\d{5,}\b", r"\d+(?:\.\d+)?"),
)
_ANY_LINES = "(?:.*\n)*?"


class Mismatch(AssertionError):
    """What was printed is not what the page shows."""


class Memory:
    """The ids that a page has shown, and what they really were."""

    def __init__(self) -> None:
        self.real: dict[str, str] = {}

    def spoken(self, command: str) -> str:
        """A command of the page with the real ids in it."""
        for kind in _BOUND:
            command = re.sub(kind, self._real, command)
        return command

    def _real(self, found: re.Match[str]) -> str:
        if found[0] not in self.real:
            raise Mismatch(f"the page uses {found[0]} before it has shown where it comes from")
        return self.real[found[0]]

    def compare(self, shown: str, printed: str) -> None:
        """The whole output of a command."""
        pattern = _Pattern(self.real)
        lines = [pattern.line(line) for line in shown.strip("\n").split("\n")]
        found = re.fullmatch("".join(lines), _even(printed))
        if found is None:
            raise Mismatch(_explained(shown, printed, lines))
        self.real |= pattern.learnt(found)

    def follow(self, shown: str, printed: str) -> int:
        """The lines that a page shows of a process that goes on, in this order; how many were found."""
        rest = _even(printed)
        for number, line in enumerate(shown.strip("\n").split("\n")):
            pattern = _Pattern(self.real)
            found = re.search(rf"^{pattern.line(line)}", rest, re.MULTILINE)
            if found is None:
                return number
            self.real |= pattern.learnt(found)
            rest = rest[found.end() :]
        return shown.strip("\n").count("\n") + 1


class _Pattern:
    """One text of a page as a regular expression, and what its groups stand for."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known
        self._bound: dict[str, str] = {}
        self._times: dict[str, str] = {}

    def line(self, shown: str) -> str:
        if shown.strip() == "…":
            return _ANY_LINES
        text = re.sub(r"\s+", " ", shown.strip())
        return f"{self._text(text, self._kinds())}\n"

    def _kinds(self) -> list[tuple[str, Callable[[str], str]]]:
        bound = [(kind, lambda text, kind=kind: self._identity(text, kind)) for kind in _BOUND]
        times = [(kind, lambda text, kind=kind: self._time(text, kind)) for kind in _TIMES]
        varying = [(kind, lambda _, instead=instead: instead) for kind, instead in _VARYING]
        return [*bound, *times, *varying, ("…", lambda _: ".*?")]

    def _text(self, text: str, kinds: list[tuple[str, Callable[[str], str]]]) -> str:
        """The text with what is of the first kind replaced, and what lies between by the further kinds."""
        if not kinds:
            return re.escape(text)
        [(kind, made), *further] = kinds
        parts, end = [], 0
        for found in re.finditer(kind, text):
            parts += [self._text(text[end : found.start()], further), made(found[0])]
            end = found.end()
        return "".join([*parts, self._text(text[end:], further)])

    def _identity(self, text: str, kind: str) -> str:
        if text in self._known:
            return re.escape(self._known[text])
        if text in self._bound.values():
            return f"(?P={next(name for name, value in self._bound.items() if value == text)})"
        name = f"bound{len(self._bound)}"
        self._bound[name] = text
        return f"(?P<{name}>{kind})"

    def _time(self, text: str, kind: str) -> str:
        name = f"time{len(self._times)}"
        self._times[name] = text
        return f"(?P<{name}>{kind})"

    def learnt(self, found: re.Match[str]) -> dict[str, str]:
        for name, shown in self._times.items():
            if found[name] != shown and not _near(found[name]):
                raise Mismatch(f"{found[name]} was printed, the page shows {shown}")
        return {shown: found[name] for name, shown in self._bound.items()}


def _near(text: str) -> bool:
    """Whether a printed time is near to now; one without a year is."""
    found = re.search(r"\d{4}-.*", text.replace(",", ".").removesuffix("Z"))
    if found is None:
        return True
    instant = datetime.fromisoformat(found[0]).replace(tzinfo=UTC)
    return abs(instant - datetime.now(UTC)) < _NEAR


def _even(printed: str) -> str:
    """What was printed, with single blanks and without empty lines at its ends."""
    lines = [re.sub(r"[ \t]+", " ", line.strip()) for line in printed.strip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def _explained(shown: str, printed: str, lines: list[str]) -> str:
    fitting = next(
        (number for number in range(len(lines), 0, -1) if re.match("".join(lines[:number]), _even(printed))), 0
    )
    wrong = [*shown.strip("\n").split("\n"), "the end"][fitting]
    return f"the page shows:\n\n{shown}\n\nprinted was:\n\n{printed}\n\nnot found: {wrong!r}"
