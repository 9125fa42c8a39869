"""Settings of the cluster: to read for every token without limits, to change for administrators.

`GET /config` lists them, `PUT /config/{name}` sets one, `DELETE /config/{name}` takes it back. Nodes and servers apply
a change within moments.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from duly.api.calls import Call, Reply, answer
from duly.api.conditions import condition_of
from duly.api.problems import Problem
from duly.api.responses import Instant, response
from duly.api.visibility import require_unlimited
from duly.errors import ConfigurationError
from duly.rules.cluster_settings import Value, check_name
from duly.scheduler.cluster_settings import SettingView


class SettingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The value: a number, or text as on the command line, such as "10m"; null where a setting accepts none."""

    value: int | float | str | None


class SettingAnswer(Struct, frozen=True, omit_defaults=True):
    """A setting as it holds for this server. `origin` is cluster, config or default.

    `stored` is what the cluster says, also where this server does not apply it: it is `pinned` here, or there is a
    `problem` with the value.
    """

    name: str
    value: Value
    origin: str
    expects: str
    stored: Value = None
    revision: int | None = None
    by: str | None = None
    at: Instant | None = None
    pinned: bool = False
    problem: str | None = None


def _etag(view: SettingView) -> Sequence[tuple[bytes, bytes]]:
    return ((b"etag", b'"%d"' % (view.revision or 0)),)


async def list_settings(call: Call[None, None]) -> Reply:
    """The settings that can change while nodes run."""
    require_unlimited(call.principal)
    return answer([response(SettingAnswer, view) for view in await call.context.scheduler.settings.list()])


async def get_setting(call: Call[None, None]) -> Reply:
    """One setting, with its revision as ETag (0: the cluster does not set it)."""
    require_unlimited(call.principal)
    view = await call.context.scheduler.settings.get(_known(call.name))
    return answer(response(SettingAnswer, view), headers=_etag(view))


async def set_setting(call: Call[None, SettingBody]) -> Reply:
    """Set a value for the whole cluster."""
    require_unlimited(call.principal)
    name, by, expect = _known(call.name), call.principal.name, _expected(call)
    view = await call.context.scheduler.settings.set(name, call.body.value, by=by, expect=expect)
    return answer(response(SettingAnswer, view), headers=_etag(view))


async def unset_setting(call: Call[None, None]) -> Reply:
    """Take a value back: the configuration of each process holds again."""
    require_unlimited(call.principal)
    await call.context.scheduler.settings.unset(_known(call.name), by=call.principal.name, expect=_expected(call))
    return Reply(204, b"")


def _known(name: str) -> str:
    try:
        check_name(name)
    except ConfigurationError as exc:
        raise Problem(404, "not-found", str(exc)) from exc
    return name


def _expected(call: Call[None, SettingBody] | Call[None, None]) -> int | None:
    """The revision that If-Match asks for; 0 is a setting that the cluster does not set."""
    condition = condition_of(call.headers)
    if condition.exists or condition.new or (condition.revisions and len(condition.revisions) > 1):
        raise Problem(400, "malformed", 'If-Match: one revision is needed, as in the ETag: "3"')
    return None if condition.revisions is None else next(iter(condition.revisions))
