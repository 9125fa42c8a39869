"""What needs an extra says so, and names it."""

import importlib
import sys

import pytest

from duly import MissingExtra


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("duly.integrations.dishka", "dishka", "dishka"),
        ("duly.integrations.django", "django", "django"),
        ("duly.observe.otel", "opentelemetry", "otel"),
    ],
)
def test_a_missing_package_is_an_error_that_names_the_extra(module, package, extra, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'duly\[{extra}\]'"):
        importlib.import_module(module)
