"""Confining processes on this machine: what its system and user allow, and the order for the supervisor."""

from __future__ import annotations

import os
import sys
from typing import Any

from duly.errors import ConfigurationError
from duly.model.confinement import Confinement
from duly.rules.confining import Rights, refusal


def check(what: str, confine: Confinement | None) -> None:
    """Raise `ConfigurationError` if this node cannot confine a process so; `what` names the job."""
    if confine is not None and (why := refusal(confine, _rights(confine))) is not None:
        raise ConfigurationError(f"{what}: {confine}: {why}")


def order_of(confine: Confinement | None) -> dict[str, Any] | None:
    """What the supervisor of processes applies, as plain data; users by number."""
    if confine is None:
        return None
    order = {name: getattr(confine, name) for name in confine.__struct_fields__ if name != "user"}
    if confine.user is not None and confine.user != _own_user():
        import pwd  # noqa: PLC0415  # POSIX only

        entry = pwd.getpwnam(confine.user)
        order["user"] = [entry.pw_uid, entry.pw_gid, os.getgrouplist(confine.user, entry.pw_gid)]
    return order


def _rights(confine: Confinement) -> Rights:
    posix = os.name == "posix"
    return Rights(
        linux=sys.platform == "linux",
        posix=posix,
        user=_own_user() if posix else "",
        may_change_user=posix and os.geteuid() == 0,
        known_user=posix and confine.user is not None and _exists(confine.user),
    )


def _own_user() -> str:
    import pwd  # noqa: PLC0415  # POSIX only

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a user without a name
        return str(os.geteuid())


def _exists(user: str) -> bool:
    import pwd  # noqa: PLC0415  # POSIX only

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
