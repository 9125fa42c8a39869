"""Wrong keywords: what people write in the first hour, and what they should write instead.

Pure text. The names are those of other schedulers and of plain guesses; what is not listed is compared with the known
keywords.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from duly.errors import shown

# The keywords that belong to one submission, not to the job and not to the handler.
SUBMISSION = ("at", "delay", "priority", "dedupe_key", "unique_for", "queue")

_EVERY_UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds")

# What to write instead, with the value in place of {}.
_INSTEAD = {
    "@scheduler.job(Cron({}))": ("cron", "crontab", "cron_expression", "expression"),
    "@scheduler.job(Every({}))": ("every", "interval", "period", "run_every"),
    "@scheduler.job(Once({}))": ("at", "once", "run_at", "run_date", "date", "when"),
    "retry={}": ("retries", "max_retries", "num_retries", "retry_count", "attempts", "max_attempts", "max_tries"),
    "retry=RetryPolicy.fixed(3, {})": ("retry_delay", "retry_interval", "default_retry_delay"),
    "retry=RetryPolicy.exponential(3, {})": ("backoff", "retry_backoff", "initial_interval"),
    "timeout={}": ("time_limit", "soft_time_limit", "max_runtime", "job_timeout", "timelimit"),
    "name={}": ("id", "job_id", "task_id", "key", "title"),
    "payload={}": ("args", "kwargs", "arguments", "params", "parameters", "data"),
    "Cron(…, timezone={}), or SchedulerConfig(timezone={})": ("tz", "timezone", "time_zone", "zone"),
    "Cron(…, jitter={}) or Every(…, jitter={})": ("jitter",),
    "start_at={}": ("start", "start_date", "start_time", "since"),
    "end_at={}": ("end", "end_date", "end_time", "until"),
    "max_runs={}": ("times", "repeat", "max_executions", "limit_runs"),
    "tags={}": ("tag", "labels", "label"),
    "queue={}": ("queue_name", "channel", "topic"),
    "executor={}": ("pool", "worker", "runner"),
    'overlap="skip", "queue", "replace" or "allow"': ("max_instances", "concurrent", "allow_overlap", "singleton"),
    'misfire="latest", "all" or "skip"': ("coalesce", "catchup", "catch_up", "misfire_policy"),
    "SchedulerConfig(misfire_grace={})": ("misfire_grace", "misfire_grace_time"),
    "SchedulerConfig(max_concurrent={}), which limits a node": ("concurrency", "max_concurrent", "max_concurrency"),
    'overlap="queue", which runs one at a time: a job has no rate limit': (
        "rate_limit",
        "rate",
        "ratelimit",
        "throttle",
    ),
    "handle.options(delay={}).submit(…): a delay belongs to a submission": ("delay", "countdown"),
    "handle.options(dedupe_key={}).submit(…): a key belongs to a submission": ("dedupe_key", "unique", "unique_key"),
    "handle.options(dedupe_key=…, unique_for={}).submit(…)": ("unique_for",),
    "scheduler.subscribe(function, RunEnded): there is no such hook": ("on_success", "on_complete", "callback"),
}
_MEANT = {keyword: text for text, keywords in _INSTEAD.items() for keyword in keywords}
_SUBMISSION_MEANT = {"countdown": "delay", "eta": "at", "run_at": "at", "when": "at", "unique_key": "dedupe_key"}


def unknown_keywords(given: dict[str, object], known: Collection[str]) -> str:
    """What is wrong with the keywords of a job that it does not take; empty if it takes all of them."""
    return "; ".join(
        f"unknown keyword {name}={shown(value)}: {_job_hint(name, value, known)}"
        for name, value in given.items()
        if name not in known
    )


def _job_hint(name: str, value: object, known: Collection[str]) -> str:
    if name in _EVERY_UNITS:
        return f"write @scheduler.job(Every({name}={shown(value)}))"
    if (instead := _MEANT.get(name)) is not None:
        return f"write {instead.replace('{}', shown(value))}"
    near = difflib.get_close_matches(name, known, 1)
    return f"write {near[0]}={shown(value)}" if near else f"a job takes {', '.join(known)}"


def misplaced_options(job: str, given: Collection[str], parameters: Collection[str]) -> str:
    """The line to write if arguments of a handler are really options of the submission; empty if none is."""
    meant = {name: _SUBMISSION_MEANT.get(name, name) for name in given if name not in parameters}
    options = [option for option in meant.values() if option in SUBMISSION]
    if not options:
        return ""
    return f"options come first: write {job}.options({', '.join(f'{option}=…' for option in options)}).submit(…)"


def number_in_text(value: object) -> int | None:
    """The whole number that a short text such as "3" stands for."""
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
