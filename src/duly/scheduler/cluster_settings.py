"""Cluster-wide settings, to read and to change: `scheduler.settings`, `duly config`, and the API.

A change is one compare-and-set on the document in the coordinator, then an entry of the audit log. Nodes and API
servers watch the document (`runtime.live_config`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from msgspec import Struct

from duly.errors import BackendUnavailable, SettingChanged
from duly.model import SchedulerConfig
from duly.model.config import CHANGEABLE
from duly.model.sanitize import checked_text
from duly.rules.cluster_settings import (
    KEY,
    InForce,
    StoredSetting,
    Value,
    check_name,
    checked,
    encoded,
    expects,
    in_force,
    own_value,
)
from duly.scheduler.client import Client

_RACES = 20
_LONGEST_ACTOR = 200
_LONGEST_VALUE = 4096


class SettingView(Struct, frozen=True):
    """One setting as it applies to this process.

    `origin` is "cluster", "config" (this process's configuration) or "default". `stored` is the cluster's value, even
    if it is not applied because this process pins the setting or because of `problem`.
    """

    name: str
    value: Value
    origin: str
    expects: str
    stored: Value = None
    revision: int | None = None
    by: str | None = None
    at: datetime | None = None
    pinned: bool = False
    problem: str | None = None


class ClusterSettings:
    """The settings that can change while nodes run."""

    def __init__(self, client: Callable[[], Awaitable[Client]]) -> None:
        self._client = client

    async def list(self) -> list[SettingView]:
        """Every such setting, with the value that applies to this process and its origin."""
        client = await self._client()
        found = in_force(client.config, await client.backend.coordinator.get(KEY))
        return [_view(name, found, client.config) for name in (*CHANGEABLE, *_unknown(found))]

    async def get(self, name: str) -> SettingView:
        """One setting."""
        check_name(name)
        return next(view for view in await self.list() if view.name == name)

    async def set(self, name: str, value: object, *, by: str = "code", expect: int | None = None) -> SettingView:
        """Set a value for the whole cluster. Nodes apply it within moments.

        With `expect`, only if that is the revision of this setting (0: the cluster has no value for it); otherwise
        raises `SettingChanged` and changes nothing.
        """
        new = checked(name, value)
        if isinstance(new, str):
            checked_text(name, new, _LONGEST_VALUE)
        await self._change(name, new, by, expect, unset=False)
        return await self.get(name)

    async def unset(self, name: str, *, by: str = "code", expect: int | None = None) -> SettingView | None:
        """Remove a value: each node's own configuration applies again. None for an unknown name."""
        client = await self._client()
        stored = in_force(client.config, await client.backend.coordinator.get(KEY)).stored
        if name not in stored:
            check_name(name)
        await self._change(name, None, by, expect, unset=True)
        return await self.get(name) if name in CHANGEABLE else None

    async def _change(self, name: str, value: Value, by: str, expect: int | None, *, unset: bool) -> None:
        client = await self._client()
        checked_text("by", by, _LONGEST_ACTOR, empty=False)
        coordinator, now = client.backend.coordinator, client.clock.now()
        for _ in range(_RACES):
            item = await coordinator.get(KEY)
            version = 0 if item is None else item.version
            stored = dict(in_force(client.config, item).stored)
            before = stored.pop(name, None)
            _compare(name, before, expect)
            if unset and before is None:
                return
            if not unset:
                stored[name] = StoredSetting(value, version + 1, by, now)
            if await coordinator.put(KEY, encoded(stored), expect=version) is not None:
                after = None if unset else {"value": value}
                was = None if before is None else {"value": before.value}
                await client.audit.record(by, "unset" if unset else "set", f"setting {name}", now, was, after)
                return
        raise BackendUnavailable(f"the settings were changed by other processes {_RACES} times in a row: try again")


def _compare(name: str, before: StoredSetting | None, expect: int | None) -> None:
    revision = 0 if before is None else before.revision
    if expect is not None and expect != revision:
        raise SettingChanged(f"setting {name} is at revision {revision}, not {expect}: read it again")


def _unknown(found: InForce) -> list[str]:
    """Stored names that this version does not know, and names whose values cannot be read."""
    return sorted((found.stored.keys() | found.problems.keys()) - set(CHANGEABLE))


def _view(name: str, found: InForce, own: SchedulerConfig) -> SettingView:
    stored = found.stored.get(name)
    known = name in CHANGEABLE
    value: Value = None
    origin = "default"
    if name in found.values:
        value, origin = found.values[name], "cluster"
    elif known:
        value = own_value(own, name)
        origin = "default" if value == own_value(SchedulerConfig(), name) else "config"
    return SettingView(
        name=name,
        value=value,
        origin=origin,
        expects=expects(name) if known else "",
        stored=None if stored is None else stored.value,
        revision=None if stored is None else stored.revision,
        by=None if stored is None else stored.by,
        at=None if stored is None else stored.at,
        pinned=name in found.pinned,
        problem=found.problems.get(name),
    )
