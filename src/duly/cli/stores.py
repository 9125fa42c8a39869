"""What is said around a program stands in the environment, where the library looks after code has had its say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.cli.settings import Settings

_VARIABLES = {"url": "DULY_URL", "store": "DULY_STORE", "queue": "DULY_QUEUE", "coordinator": "DULY_COORDINATOR"}


def stand_in(settings: Settings) -> None:
    """Let what was found around the program stand in the environment."""
    for name, variable in _VARIABLES.items():
        value = getattr(settings, name)
        if value is not None:
            os.environ[variable] = value
