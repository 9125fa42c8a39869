"""Cluster-wide settings: names, values, and what holds for one process."""

from datetime import UTC, datetime

import msgspec
import pytest

from duly import ConfigurationError, SchedulerConfig
from duly.model import Item
from duly.model.config import CHANGEABLE
from duly.rules.cluster_settings import (
    InForce,
    StoredSetting,
    changes,
    checked,
    encoded,
    expects,
    in_force,
    own_value,
)

AT = datetime(2027, 3, 15, tzinfo=UTC)


def document(version: int = 1, **values) -> Item:
    return Item(
        "settings", encoded({name: StoredSetting(value, 1, "ada", AT) for name, value in values.items()}), version
    )


@pytest.mark.parametrize("name", CHANGEABLE)
def test_every_setting_says_what_it_expects_and_has_a_value_in_a_configuration(name):
    assert expects(name)
    own = own_value(SchedulerConfig(), name)
    assert own is None or checked(name, own) == own


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("max_concurrent", "20", 20),
        ("max_concurrent", 20, 20),
        ("tick_interval", "500ms", 0.5),
        ("misfire_grace", "2h", 7200.0),
        ("misfire_grace", 90, 90),
        ("shutdown_timeout", "none", None),
        ("shutdown_timeout", None, None),
        ("retention.completed", "7d", 604800.0),
        ("retention.completed", "None", None),
        ("retention.max_completed", "500", 500),
        ("log_level", "debug", "DEBUG"),
        ("token_rate", " 10/s:20 ", "10/s:20"),
        ("token_rate", "none", None),
        ("handler_rates", "greet=10/s,report=5/m", "greet=10/s,report=5/m"),
    ],
)
def test_values_that_are_accepted(name, given, value):
    assert checked(name, given) == value


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("max_concurrent", "many", r"max_concurrent='many': expected a whole number"),
        ("max_concurrent", "0", r"max_concurrent=0: expected a whole number from 1 to 100000"),
        ("max_concurrent", 2.5, r"max_concurrent=2.5: expected a whole number"),
        ("max_concurrent", True, r"max_concurrent=True: expected a whole number"),
        ("max_concurrent", "9" * 5000, r"expected a whole number"),
        ("max_concurrent", None, r"max_concurrent=None: expected a whole number"),
        ("max_concurrent", [1], r"max_concurrent=\[1\]: expected a whole number"),
        ("tick_interval", "soon", r"tick_interval: invalid duration 'soon': expected e.g. 90s"),
        ("tick_interval", "none", r"tick_interval: invalid duration 'none'"),
        ("tick_interval", -1, r"tick_interval=-1"),
        ("retention.failed", float("nan"), r"retention.failed=nan"),
        ("log_level", "LOUD", r"log_level='LOUD': expected one of DEBUG, INFO"),
        ("log_level", None, r"log_level=None: expected one of DEBUG"),
        ("log_level", 10, r"log_level=10: expected one of DEBUG"),
        ("token_rate", "fast", r"token_rate: invalid rate 'fast': expected e.g. 10/s"),
        ("handler_rates", "greet", r"handler_rates: invalid rate 'greet': expected handler=rate"),
        ("lock_ttl", 5, r"lock_ttl cannot change while nodes run: .* restart"),
        ("on_error", "x", r"on_error cannot change while nodes run"),
        ("max_concurent", 5, r"unknown setting 'max_concurent'; did you mean max_concurrent\?"),
        ("zzz", 5, r"unknown setting 'zzz'; these can be set: max_concurrent, "),
        ("retention", 5, r"unknown setting 'retention'; did you mean retention\."),
    ],
)
def test_what_is_refused_says_why(name, given, said):
    with pytest.raises(ConfigurationError, match=said):
        checked(name, given)


def test_the_cluster_comes_before_the_configuration():
    own = SchedulerConfig(max_concurrent=7, misfire_grace=5)
    found = in_force(own, document(3, max_concurrent=20, **{"retention.failed": None}, log_level="DEBUG"))
    assert (found.config.max_concurrent, found.config.misfire_grace, found.config.retention.failed) == (20, 5, None)
    assert (found.revision, found.text("log_level"), found.problems, found.pinned) == (3, "DEBUG", {}, ())
    assert in_force(own, None) == InForce(own)


@pytest.mark.parametrize("pinned", [("max_concurrent",), ("*",)])
def test_a_pinned_setting_stays_as_it_is_configured(pinned):
    own = SchedulerConfig(max_concurrent=7, pinned=pinned)
    found = in_force(own, document(max_concurrent=20))
    assert (found.config.max_concurrent, found.pinned, dict(found.values)) == (7, ("max_concurrent",), {})


def test_a_pin_must_name_a_setting():
    with pytest.raises(ConfigurationError, match=r"pinned='lock_ttl': expected \* or one of max_concurrent"):
        SchedulerConfig(pinned=("lock_ttl",))


def test_a_bad_value_is_a_problem_and_the_others_hold():
    own = SchedulerConfig(max_concurrent=7)
    found = in_force(own, document(max_concurrent=-3, max_losses=5, from_the_future=1))
    assert (found.config.max_concurrent, found.config.max_losses) == (7, 5)
    assert found.problems.keys() == {"max_concurrent", "from_the_future"}


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[]", b"null", b'{"max_concurrent": 5}', b'{"max_concurrent": {"value": []}}', b"[" * 100_000],
)
def test_whatever_is_stored_the_configuration_holds(text):
    own = SchedulerConfig(max_concurrent=7)
    found = in_force(own, Item("settings", text, 4))
    assert found.config == own
    assert found.problems


def test_changes_are_told_in_words():
    own = SchedulerConfig()
    before, after = in_force(own, None), in_force(own, document(max_concurrent=20, token_rate="10/s"))
    assert changes(before, after) == ["max_concurrent 10 → 20", "token_rate as configured → 10/s"]
    assert changes(after, before) == ["max_concurrent 20 → 10", "token_rate 10/s → as configured"]
    assert changes(after, after) == []


def test_the_stored_form_does_not_change():
    """Nodes of several versions read it."""
    item = document(max_concurrent=20)
    entry = {"value": 20, "revision": 1, "by": "ada", "at": "2027-03-15T00:00:00Z"}
    assert msgspec.json.decode(item.value) == {"max_concurrent": entry}
