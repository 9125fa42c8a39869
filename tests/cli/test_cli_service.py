"""Tokens, the audit log and settings on the command line."""

import json
import sqlite3
from contextlib import closing

import pytest
from tests.cli.cli_support import document, invoke

from duly.api.addresses import parse
from duly.cli.settings import read_settings, sourced_settings
from duly.errors import ConfigurationError

# --- tokens


def test_a_token_is_shown_once_listed_and_revoked(ids):
    made = invoke("token", "create", "--role", "operator", "--name", "ada", "--expires", "90d", "--queue", "mail")
    text = made.stdout.strip()
    prefix, token_id, secret = text.split("_", 2)
    assert (prefix, len(token_id), len(secret)) == ("duly", 12, 43)
    assert "shown only once" in made.stderr
    listed = invoke("token", "list").stdout
    assert token_id in listed
    assert secret not in listed
    [token] = document("token", "list")
    assert (token["role"], token["name"], token["status"], token["queues"]) == ("operator", "ada", "active", ["mail"])
    assert "digest" not in token
    assert invoke("token", "revoke", token_id).stdout == f"token {token_id} (ada) is revoked\n"
    assert document("token", "list")[0]["status"] == "revoked"
    assert "there is no token 'nobody'" in invoke("token", "revoke", "nobody", code=1).stderr


def test_the_first_token_makes_the_store(tmp_path):
    made = document("token", "create", "--role", "admin", "--url", f"sqlite:///{tmp_path}/new.db")
    assert made["token"].startswith("duly_")
    assert (tmp_path / "new.db").exists()


def test_a_role_must_be_one():
    assert "'boss' is not one of" in invoke("token", "create", "--role", "boss", code=2).stderr


# --- the audit log


def test_what_is_done_on_the_command_line_is_in_the_audit_log(ids):
    invoke("pause", "nightly", "--note", "moving")
    invoke("resume", "nightly")
    run = invoke("trigger", "invoice").stdout.strip()
    invoke("cancel", run)
    invoke("redrive", ids["bad"])
    invoke("remove", "invoice", "--yes")
    entries = document("audit", "list")
    assert [(entry["deed"]["action"], entry["deed"]["target"]) for entry in entries] == [
        ("pause", "job nightly"),
        ("resume", "job nightly"),
        ("trigger", "job invoice"),
        ("cancel", f"run {run}"),
        ("redrive", f"run {ids['bad']}"),
        ("remove", "job invoice"),
    ]
    assert all(entry["deed"]["actor"].startswith("cli ") for entry in entries)
    assert [(entry["deed"]["before"], entry["deed"]["after"]) for entry in entries] == [
        ({"status": "active", "note": ""}, {"status": "paused", "note": "moving"}),
        ({"status": "paused", "note": "moving"}, {"status": "active", "note": ""}),
        (None, {"run": run}),
        ({"status": "queued"}, {"reason": None}),
        ({"status": "failed"}, None),
        ({"status": "active", "revision": 1}, None),
    ]
    assert "job nightly" in invoke("audit", "list", "--after", "1", "--limit", "1").stdout
    head = entries[-1]["hash"]
    assert invoke("audit", "verify").stdout == f"6 entries, none was changed\nhead: {head} (entry 6)\n"


def test_what_changes_nothing_is_not_in_the_audit_log(ids):
    invoke("resume", "nightly")
    assert document("audit", "list") == []


def test_tokens_and_migrations_are_in_the_audit_log(tmp_path):
    invoke("migrate")
    made = document("token", "create", "--role", "viewer", "--name", "ada")
    invoke("token", "revoke", made["id"])
    invoke("token", "revoke", made["id"])
    deeds = [entry["deed"] for entry in document("audit", "list")]
    assert [(deed["action"], deed["target"]) for deed in deeds] == [
        ("migrate", "schema"),
        ("create", f"token {made['id']}"),
        ("revoke", f"token {made['id']}"),
    ]
    steps = ["0001_initial", "0002_sharing", "0003_unique", "0004_job_index", "0005_run_readings", "0006_run_lines"]
    assert deeds[0]["after"] == {"steps": steps}
    assert [deeds[2][key]["status"] for key in ("before", "after")] == ["active", "revoked"]


def test_a_changed_audit_log_is_told(ids):
    invoke("pause", "nightly")
    invoke("resume", "nightly")
    with closing(sqlite3.connect("duly.db")) as connection, connection:
        forged = "CAST(replace(CAST(value AS TEXT), 'pause', 'pausE') AS BLOB)"
        assert (
            connection.execute(f"UPDATE duly_log SET value = {forged} WHERE log = 'audit' AND sequence = 1").rowcount
            == 1
        )
    assert "entry 1 was changed" in invoke("audit", "verify", code=1).stderr


def test_a_head_that_was_noted_must_still_be_in_the_audit_log(ids):
    invoke("pause", "nightly")
    noted = document("audit", "verify")["head"]["hash"]
    invoke("resume", "nightly")
    assert "expected: entry 1\n" in invoke("audit", "verify", "--expect", noted.upper()).stdout
    other = "0123456789abcdef" * 4
    assert f"no entry has the hash {other}" in invoke("audit", "verify", "--expect", other, code=1).stderr
    assert "64 hexadecimal digits" in invoke("audit", "verify", "--expect", "5f0c", code=2).stderr


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM duly_log WHERE log = 'audit'",
        "DELETE FROM duly_log WHERE log = 'audit' AND sequence = 2",
        "UPDATE duly_log SET value = X'FF00' WHERE log = 'audit' AND sequence = 2",
    ],
)
def test_a_damaged_audit_log_is_a_finding_and_stops_no_command(ids, damage):
    invoke("pause", "nightly")
    invoke("resume", "nightly")
    with closing(sqlite3.connect("duly.db")) as connection, connection:
        connection.execute(damage)
    assert "Traceback" not in invoke("audit", "verify", code=1).output
    invoke("audit", "list")
    invoke("pause", "nightly")
    assert [entry["deed"]["action"] for entry in document("audit", "list")[-2:]] == ["audit-damage", "pause"]


def test_with_a_key_the_entries_of_the_audit_log_are_authenticated(ids, tmp_path):
    (tmp_path / "key").write_text("a long and random key\n")
    keyed = {"DULY_AUDIT_KEY_FILE": str(tmp_path / "key")}
    invoke("pause", "nightly", **keyed)
    assert "authenticated: 1 entries" in invoke("audit", "verify", **keyed).stdout
    invoke("resume", "nightly")
    assert "without the key" in invoke("audit", "verify", code=1, **keyed).stderr
    invoke("audit", "verify")
    shown = invoke("config", "show", "--json", **keyed).stdout
    assert "a long and random key" not in shown
    rows = {row["setting"]: (row["value"], row["source"]) for row in json.loads(shown)}
    assert rows["audit_key"] == ("***", "DULY_AUDIT_KEY_FILE")
    assert "at least 16 characters" in invoke("pause", "nightly", code=1, DULY_AUDIT_KEY="short").stderr


# --- settings


def test_config_show_says_every_value_and_where_it_came_from(tmp_path):
    (tmp_path / "duly.toml").write_text('http_addr = ":8080"\nconcurrency = 7\nlog_level = "DEBUG"\n')
    (tmp_path / "secret").write_text("redis://me:s3cret@host:6379/0\n")
    environment = {
        "DULY_URL_FILE": str(tmp_path / "secret"),
        "WORKER_ID": "worker-1",
        "LOG_LEVEL": "ERROR",
        "DULY_LOG_FORMAT": "JSON",
    }
    shown = invoke("config", "show", "--json", **environment).stdout
    assert "s3cret" not in shown
    rows = {row["setting"]: (row["value"], row["source"]) for row in json.loads(shown)}
    assert rows["url"] == ("redis://***@host:6379/0", "DULY_URL_FILE")
    assert rows["http_addr"] == (":8080", "duly.toml")
    assert rows["worker_http_addr"] == ("127.0.0.1:9090", "default")
    assert rows["log_level"] == ("ERROR", "LOG_LEVEL")
    assert rows["log_format"] == ("JSON", "DULY_LOG_FORMAT")
    assert rows["node_id"] == ("worker-1", "WORKER_ID")
    assert rows["max_concurrent"] == (7, "duly.toml")
    assert rows["lock_ttl"] == (15.0, "default")
    assert rows["auth"] == ("token", "default")
    assert "s3cret" not in invoke("config", "show", **environment).stdout


def test_config_show_says_what_code_says(tmp_path, monkeypatch):
    (tmp_path / "shown_app.py").write_text(
        "from duly import Scheduler, SchedulerConfig\n"
        "scheduler = Scheduler(config=SchedulerConfig(max_concurrent=3, default_handler='note'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = {row["setting"]: row for row in document("config", "show", "shown_app")}
    assert (rows["max_concurrent"]["value"], rows["max_concurrent"]["source"]) == (3, "code")
    assert (rows["default_handler"]["value"], rows["default_handler"]["source"]) == ("note", "code")


def test_a_duly_variable_beats_all_plain_names_of_stores(tmp_path):
    found = read_settings({"DULY_URL": "memory://", "REDIS_URL": "h:1", "POSTGRES_DSN": "postgresql://h/db"}, tmp_path)
    assert (found.url, found.store, found.queue) == ("memory://", None, None)
    said = sourced_settings({"REDIS_URL": "h:1"}, tmp_path)
    assert (said["url"].value, said["url"].source) == ("redis://h:1", "REDIS_URL")


def test_a_variable_may_name_a_file_that_holds_the_value(tmp_path):
    (tmp_path / "url").write_text("  memory://\n")
    assert read_settings({"DULY_URL_FILE": str(tmp_path / "url")}, tmp_path).url == "memory://"
    with pytest.raises(ConfigurationError, match="both set"):
        read_settings({"DULY_URL_FILE": "x", "DULY_URL": "y"}, tmp_path)
    with pytest.raises(ConfigurationError, match="REDIS_URL_FILE='nowhere' cannot be read"):
        read_settings({"REDIS_URL_FILE": "nowhere"}, tmp_path)


def test_numbers_and_lists_in_variables(tmp_path):
    found = read_settings({"DULY_CONCURRENCY": "12", "DULY_QUEUES": "mail, default"}, tmp_path)
    assert (found.field("max_concurrent"), found.field("queues")) == (12, ("mail", "default"))
    with pytest.raises(ConfigurationError, match="DULY_CONCURRENCY='many'"):
        read_settings({"DULY_CONCURRENCY": "many"}, tmp_path)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        (":8080", "", 8080, False),
        ("8080", "127.0.0.1", 8080, True),
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        ("localhost:80", "localhost", 80, True),
        ("[::1]:9090", "::1", 9090, True),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("[::]:1", "::", 1, False),
        ("example.org:443", "example.org", 443, False),
    ],
)
def test_addresses(text, host, port, loopback):
    address = parse(text)
    assert (address.host, address.port, address.loopback) == (host, port, loopback)


@pytest.mark.parametrize("text", ["", "nowhere", "h:", "h:x", "h:65536", "::1:80", "h:-1", "h:８０"])
def test_what_is_no_address(text):
    with pytest.raises(ConfigurationError, match="invalid address"):
        parse(text)
