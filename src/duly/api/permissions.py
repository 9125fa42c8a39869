"""Permissions: what a caller may do. Every route names one; a role grants a set of them.

A token may further be limited to queues and handlers. What lies outside of those does not exist for it: reading and
operating answer as if there were no such thing.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from duly.api.problems import Problem
from duly.api.rates import Rate


class Permission(StrEnum):
    """What a route asks for."""

    PUBLIC = "public"  # health and the document: no token needed
    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMINISTER = "administer"


class TokenRole(StrEnum):
    """What a token is for; each may do all that the one before may."""

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
    """Who calls: for the audit log, and what they may do. None in `queues` or `handlers` is no limit."""

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

    def covers(self, queue: str, handler: str) -> bool:
        """Whether something of this queue and handler exists for this caller."""
        return (self.queues is None or queue in self.queues) and (self.handlers is None or handler in self.handlers)

    def covers_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def require(self, permission: Permission) -> None:
        if not self.may(permission):
            needed = next(role for role in TokenRole if permission in GRANTS[role])
            raise Problem(403, "forbidden", f"this token is a {self.role.value}'s: role {needed.value} is needed")

    def require_unlimited(self) -> None:
        """For what concerns all queues and handlers at once."""
        if self.limited:
            raise Problem(403, "forbidden", "this token is limited to some queues or handlers: one without is needed")

    def require_target(self, queue: str, handler: str) -> None:
        """For work that is to be submitted: a limit is said, since the caller named the target."""
        if not self.covers(queue, handler):
            detail = f"this token may not submit to handler {handler!r} on queue {queue!r}"
            raise Problem(403, "forbidden", detail)


ANONYMOUS = Principal("anonymous", TokenRole.VIEWER, frozenset(), frozenset())
LOCAL = Principal("local", TokenRole.ADMIN)
