"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 200  # characters: comparing two texts takes time proportional to the product of their lengths
_SIMILAR = 0.7


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar, None if none is. Case is ignored."""
    names = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name[:_LONGEST].casefold(), names, n=1, cutoff=_SIMILAR)
    return names[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that does not exist: ": did you mean x?", or nothing."""
    near = nearest(name, known)
    return "" if near is None else f": did you mean {near}?"
