"""Settings: every field of the configuration can be set by variables and files, and the source of each is shown."""

import json
from datetime import timedelta

import pytest
from tests.cli.cli_support import document, invoke

from duly import ConfigurationError, Retention, SchedulerConfig
from duly.cli.node_settings import NODE_SETTINGS
from duly.cli.programs import configured, own_value
from duly.cli.settings import read_settings, sourced_settings
from duly.model.config import CHANGEABLE
from duly.runtime.notify.tables import targets_of

TARGETS = {"ops": {"webhook": "https://example.org/hook"}}
# For each field: the text of its variable, the value in a file as TOML, and the value that both mean.
SAMPLES = {
    "notify": (
        json.dumps(TARGETS),
        '{ ops = { webhook = "https://example.org/hook" } }',
        [*map(repr, targets_of(TARGETS))],
    ),
    "notify_wait": ("5s", '"5s"', 5.0),
    "notify_repeat": ("2h", '"2h"', 7200.0),
    "late_after": ("90s", "90", 90.0),
    "keep_logs": ("50", "50", 50),
    "tick_interval": ("2s", '"2s"', 2.0),
    "max_concurrent": ("7", "7", 7),
    "lock_ttl": ("1m", "60", 60.0),
    "lock_refresh_interval": ("3s", "3.0", 3.0),
    "leader_ttl": ("20s", '"20s"', 20.0),
    "shutdown_timeout": ("none", '"none"', None),
    "transaction_timeout": ("500ms", "0.5", 0.5),
    "timezone": ("Europe/Berlin", '"Europe/Berlin"', "Europe/Berlin"),
    "namespace": ("shop", '"shop"', "shop"),
    "node_id": ("web-1", '"web-1"', "web-1"),
    "roles": ("worker", '["worker"]', ("worker",)),
    "queues": ("mail=3,default=1", "{mail = 3, default = 1}", {"mail": 3.0, "default": 1.0}),
    "labels": ("gpu=yes,zone=a", '{gpu = "yes", zone = "a"}', {"gpu": "yes", "zone": "a"}),
    "misfire_grace": ("5m", '"5m"', 300.0),
    "max_losses": ("5", "5", 5),
    "max_payload_bytes": ("1000", "1000", 1000),
    "max_result_bytes": ("1000", "1000", 1000),
    "registry": ("frozen", '"frozen"', "frozen"),
    "placement": ("assign", '"assign"', "assign"),
    "assign_ahead": ("4", "4", 4),
    "shards": ("4", "4", 4),
    "default_handler": ("note", '"note"', "note"),
    "allow_commands": ("stored", '"stored"', "stored"),
    "accept_data_loss": ("yes", "true", True),
    "imports": ("shop.a, shop.b", '["shop.a", "shop.b"]', ("shop.a", "shop.b")),
    "publish_events": ("no", "false", False),
    "keep_events": ("9", "9", 9),
    "audit_key": ("sixteen letters!", '"sixteen letters!"', "sixteen letters!"),
    "pinned": ("shards,log_level", '["shards", "log_level"]', ("shards", "log_level")),
    "on_error": ("hooks_of_tests:on_error", '"hooks_of_tests:on_error"', "on_error"),
    "on_failure": ("hooks_of_tests:on_failure", '"hooks_of_tests:on_failure"', "on_failure"),
    **{f"retention.{name}": ("7d", '"7d"', 604800.0) for name in Retention.__struct_fields__ if name[:4] != "max_"},
    **{f"retention.{name}": ("none", '"none"', None) for name in Retention.__struct_fields__ if name[:4] == "max_"},
}


@pytest.fixture(autouse=True)
def _hooks(tmp_path, monkeypatch):
    (tmp_path / "hooks_of_tests.py").write_text("def on_error(*_): ...\ndef on_failure(*_): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def chosen(name, settings):
    value = own_value(configured(SchedulerConfig(), {}, settings), name)
    found = value.__name__ if callable(value) else value
    return [repr(each) for each in found] if name == "notify" else found  # a target is not compared by its value


def test_every_field_of_the_configuration_is_a_setting():
    """A new field needs a sample here: this is the place where it is noticed."""
    fields = {name for name in SchedulerConfig.__struct_fields__ if name != "retention"}
    fields |= {f"retention.{name}" for name in Retention.__struct_fields__}
    assert set(NODE_SETTINGS) == fields
    assert set(SAMPLES) == fields


@pytest.mark.parametrize("name", SAMPLES)
def test_a_variable_sets_the_field(name, tmp_path):
    text, _, value = SAMPLES[name]
    for variable in NODE_SETTINGS[name].variables:
        assert chosen(name, read_settings({variable: text}, tmp_path)) == value
    (tmp_path / "value").write_text(f"{text}\n")
    file = {f"{NODE_SETTINGS[name].variables[0]}_FILE": str(tmp_path / "value")}
    assert chosen(name, read_settings(file, tmp_path)) == value


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("file", "table"), [("duly.toml", ""), ("pyproject.toml", "tool.duly")])
def test_a_file_sets_the_field(name, file, table, tmp_path):
    _, toml, value = SAMPLES[name]
    for key in NODE_SETTINGS[name].keys:
        head = f"[{table}]\n" if table else ""
        (tmp_path / file).write_text(f"{head}{key} = {toml}\n")
        settings = read_settings({}, tmp_path)
        assert chosen(name, settings) == value
        assert settings.node[name].source == file


@pytest.mark.parametrize("name", SAMPLES)
def test_code_beats_variables_and_variables_beat_files(name, tmp_path):
    text, toml, value = SAMPLES[name]
    (tmp_path / "duly.toml").write_text(f"{NODE_SETTINGS[name].keys[0]} = {toml}\n")
    variable = NODE_SETTINGS[name].variables[0]
    assert sourced_settings({variable: text}, tmp_path)[name].source == variable
    if isinstance(value, int) and not isinstance(value, bool):
        code = SchedulerConfig(**{name: value + 1})
        assert own_value(configured(code, {}, read_settings({variable: text}, tmp_path)), name) == value + 1
        flags = {name: value + 2}
        assert own_value(configured(code, flags, read_settings({variable: text}, tmp_path)), name) == value + 2


def test_every_row_says_whether_it_can_change_while_nodes_run():
    rows = {row["setting"]: row["change"] for row in document("config", "show")}
    assert {name for name, change in rows.items() if change == "live"} == set(CHANGEABLE)
    assert set(rows.values()) == {"live", "restart"}
    assert rows["queues"] == rows["log_level"] == rows["retention.completed"] == "live"
    assert rows["lock_ttl"] == "restart"


def test_show_is_readable_and_without_secrets(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.duly]\nurl = "redis://me:s3cret@h/0"\nroles = ["worker"]\n')
    environment = {"DULY_AUDIT_KEY": "a secret of many letters", "DULY_RETENTION_COMPLETED": "7d"}
    shown = invoke("config", "show", **environment).stdout
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert "1 week" in lines["retention.completed"]
    assert "DULY_RETENTION_COMPLETED" in lines["retention.completed"]
    assert "worker" in lines["roles"]
    assert "pyproject.toml" in lines["roles"]
    assert "***" in lines["audit_key"]
    whole = json.loads(invoke("config", "show", "--json", **environment).stdout)
    for text in (shown, json.dumps(whole)):
        assert "s3cret" not in text
        assert "many letters" not in text


def test_duly_toml_comes_before_pyproject(tmp_path):
    (tmp_path / "duly.toml").write_text("concurrency = 3\n")
    (tmp_path / "pyproject.toml").write_text("[tool.duly]\nconcurrency = 4\nshards = 2\n")
    settings = read_settings({}, tmp_path)
    assert settings.field("max_concurrent") == 3
    assert settings.field("shards") is None


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "[tool.other]\nduly = 1\n", "tool = 3 # duly\n"])
def test_a_project_that_says_nothing_sets_nothing(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert read_settings({}, tmp_path).node == {}


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("duly.toml", "concurency = 3\n", "did you mean concurrency"),
        ("duly.toml", "concurrency = 3\nmax_concurrent = 3\n", "mean the same"),
        ("duly.toml", "retention = 3\n", "expected a table"),
        ("duly.toml", "retention = {completd = 3}\n", "did you mean retention.completed"),
        ("duly.toml", "shards = true\n", "expected a whole number"),
        ("duly.toml", "lock_ttl = [1]\n", "expected a duration"),
        ("duly.toml", "roles = [1]\n", "expected a list"),
        ("pyproject.toml", "[tool]\nduly = 3\n", "is not a table"),
        ("pyproject.toml", "[tool.duly\n", "cannot be read"),
        ("pyproject.toml", "[tool.duly]\nnobody = 1\n", "pyproject.toml: unknown key 'nobody'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, file, text, problem):
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        read_settings({}, tmp_path)


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("DULY_LOCK_TTL", "soon", "DULY_LOCK_TTL: invalid duration 'soon'"),
        ("DULY_SHARDS", "many", "DULY_SHARDS='many': expected a whole number"),
        ("DULY_ACCEPT_DATA_LOSS", "maybe", "expected yes or no"),
        ("DULY_ALLOW_COMMANDS", "all", "expected yes or no"),
        ("DULY_LABELS", "gpu", "invalid label"),
        ("DULY_QUEUES", "mail=x", "DULY_QUEUES='mail=x': expected names such as"),
        ("DULY_ON_ERROR", "nothing", "expected module:attribute"),
        ("DULY_ON_ERROR", "hooks_of_tests:nobody", "there is no function 'nobody'"),
        ("DULY_ON_ERROR", "hooks_of_nobody:x", "there is no module"),
        ("DULY_SHARDS", "9999", "DULY_SHARDS: shards=9999: expected a whole number from 1 to 64"),
        ("DULY_ROLES", "boss", "DULY_ROLES: roles="),
        ("DULY_TIMEZONE", "Mars/Olympus", "DULY_TIMEZONE: timezone="),
        ("DULY_RETENTION_FAILED", "-1", "DULY_RETENTION_FAILED"),
    ],
)
def test_what_is_wrong_in_a_variable_is_named(tmp_path, variable, text, problem):
    with pytest.raises(ConfigurationError, match=problem.replace("(", r"\(")):
        configured(SchedulerConfig(), {}, read_settings({variable: text}, tmp_path))


def test_values_that_belong_together_are_applied_together(tmp_path):
    settings = read_settings({"DULY_LOCK_TTL": "60s", "DULY_LOCK_REFRESH_INTERVAL": "20s"}, tmp_path)
    config = configured(SchedulerConfig(), {}, settings)
    assert (config.lease, config.refresh) == (60.0, 20.0)


def test_code_keeps_the_parts_of_retention_that_it_sets(tmp_path):
    code = SchedulerConfig(retention=Retention(completed=timedelta(hours=1).total_seconds()))
    settings = read_settings({"DULY_RETENTION_COMPLETED": "7d", "DULY_RETENTION_FAILED": "8d"}, tmp_path)
    retention = configured(code, {}, settings).retention
    assert (retention.completed, retention.failed) == (3600.0, 8 * 86400.0)


def test_the_library_reads_none_of_these(monkeypatch, tmp_path):
    from duly import Scheduler

    (tmp_path / "duly.toml").write_text("shards = 3\n")
    monkeypatch.setenv("DULY_SHARDS", "4")
    assert Scheduler("memory://").config.shards == 1
