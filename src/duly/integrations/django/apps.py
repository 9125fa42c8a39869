"""The application that Django loads: it configures the scheduler from the settings and finds the jobs."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from duly.errors import ConfigurationError
from duly.integrations.django import scheduler
from duly.integrations.django.connections import tidy
from duly.model import SchedulerConfig

_KEYS = ("URL", "CONFIG")


class DulyConfig(AppConfig):
    """Reads the setting `DULY`, and imports the `jobs.py` of every installed application."""

    name = "duly.integrations.django"
    label = "duly"
    verbose_name = "Duly"

    def ready(self) -> None:
        url, config = configuration(getattr(settings, "DULY", {}))
        scheduler.configure(url, config=config)
        scheduler.wrap(tidy)
        autodiscover_modules("jobs")


def configuration(said: Any) -> tuple[str | None, SchedulerConfig]:
    """The store's address, if the setting names one, and the settings of the node."""
    if not isinstance(said, dict):
        kind = type(said).__name__  # not the value: it may hold a password
        raise ConfigurationError(f"settings.DULY is a {kind}, but must be a dict with the keys {' and '.join(_KEYS)}")
    for key in said:
        if key not in _KEYS:
            raise ConfigurationError(f"settings.DULY: unknown key {key!r}; known are {', '.join(_KEYS)}")
    fields = said.get("CONFIG", {})
    try:
        return said.get("URL"), SchedulerConfig(**fields)
    except TypeError as exc:
        raise ConfigurationError(f"settings.DULY['CONFIG']: {exc}; its keys are the fields of SchedulerConfig") from exc
