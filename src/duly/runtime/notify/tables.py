"""Targets as tables of `duly.toml` and of job files: `[notify.NAME]`.

Secrets are never in a table, only in files and environment variables that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from duly.errors import ConfigurationError
from duly.model.notification import NotificationTarget
from duly.runtime.notify.mail import Mail
from duly.runtime.notify.program import NotifyCommand
from duly.runtime.notify.webhook import Webhook


class _WebhookTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    webhook: str | None = None
    webhook_file: str | None = None
    webhook_env: str | None = None
    secret_file: str | None = None
    secret_env: str | None = None
    headers: dict[str, str] | None = None
    format: str = "json"
    on: list[str] | None = None
    timeout: float = 10.0


class _MailTable(Struct, frozen=True, forbid_unknown_fields=True):
    mail: str | list[str]
    sender: str
    server: str = "smtp://localhost:25"
    password_file: str | None = None
    password_env: str | None = None
    on: list[str] | None = None
    timeout: float = 20.0


class _CommandTable(Struct, frozen=True, forbid_unknown_fields=True):
    command: list[str]
    on: list[str] | None = None
    timeout: float = 20.0


def targets_of(tables: Mapping[str, Any], folder: Path | None = None) -> tuple[NotificationTarget, ...]:
    """The targets of all tables; paths of secrets are relative to `folder`."""
    return tuple(target_of(name, table, folder) for name, table in tables.items())


def target_of(name: str, table: Any, folder: Path | None = None) -> NotificationTarget:
    """The target of one table."""
    kinds = {key.partition("_")[0] for key in table} & {"webhook", "mail", "command"} if _is_table(table) else set()
    if len(kinds) != 1:
        raise ConfigurationError(f"notify {name!r}: expected a table with one of webhook, mail and command")
    try:
        match kinds.pop():
            case "webhook":
                given = asdict(msgspec.convert(table, _WebhookTable))
                return Webhook(given.pop("webhook"), name=name, **_resolved(given, folder))
            case "mail":
                given = asdict(msgspec.convert(table, _MailTable))
                return Mail(given.pop("mail"), name=name, **_resolved(given, folder))
            case _:
                given = asdict(msgspec.convert(table, _CommandTable))
                return NotifyCommand(given.pop("command"), name=name, **given)
    except msgspec.ValidationError as exc:
        raise ConfigurationError(f"notify {name!r}: {exc}") from exc


def _is_table(table: Any) -> bool:
    return isinstance(table, Mapping) and all(isinstance(key, str) for key in table)


def _resolved(given: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The arguments of a target: files beside the configuration, and the names that its class uses."""
    found = {key.replace("webhook_", "url_"): value for key, value in given.items()}
    files = {key: folder / value for key, value in found.items() if folder and key.endswith("_file") and value}
    return found | files
