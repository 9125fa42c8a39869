"""Permissions and roles. Each route requires a permission; a role grants a set of them.

A token may also be limited to queues and handlers; `visibility` implements these limits.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from duly.api.problems import Problem
from duly.rules.rate_limits import Rate


class Permission(StrEnum):
    """What a route requires."""

    PUBLIC = "public"  # health and the OpenAPI document: no token needed
    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMINISTER = "administer"


class TokenRole(StrEnum):
    """The role of a token. Each role includes the permissions of the previous one."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"


_VIEW = frozenset({Permission.PUBLIC, Permission.READ})
_SUBMIT = _VIEW | {Permission.SUBMIT}
_OPERATE = _SUBMIT | {Permission.OPERATE}

GRANTS: dict[TokenRole, frozenset[Permission]] = {
    TokenRole.VIEWER: _VIEW,
    TokenRole.SUBMITTER: _SUBMIT,
    TokenRole.OPERATOR: _OPERATE,
    TokenRole.ADMIN: _OPERATE | {Permission.ADMINISTER},
}


class Principal(Struct, frozen=True):
    """A caller: the name for the audit log, the role and the limits. None in `queues` or `handlers` means no limit."""

    name: str
    role: TokenRole
    queues: frozenset[str] | None = None
    handlers: frozenset[str] | None = None
    token_id: str = ""
    rate: Rate | None = None

    @property
    def limited(self) -> bool:
        return self.queues is not None or self.handlers is not None

    def may(self, permission: Permission) -> bool:
        return permission in GRANTS[self.role]

    def require(self, permission: Permission) -> None:
        if not self.may(permission):
            needed = next(role for role in TokenRole if permission in GRANTS[role])
            raise Problem(
                403, "forbidden", f"this token has the role {self.role.value}; the role {needed.value} is required"
            )


ANONYMOUS = Principal("anonymous", TokenRole.VIEWER, frozenset(), frozenset())
LOCAL = Principal("local", TokenRole.ADMIN)
