"""Numbers of bytes in words."""

from __future__ import annotations


def in_words(size: int) -> str:
    """A number of bytes with a unit, such as "12 MiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
