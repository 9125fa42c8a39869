"""The suite notices when a store's own copy of an admission rule differs from the tables of `rules.admission`."""

import pytest

from duly.backends.memory import open_url as open_memory
from duly.backends.postgres import claiming
from duly.backends.postgres import open_url as open_postgres
from duly.model.holds import hold_for_job
from duly.ports import Opening
from duly.rules.admission import Admission
from duly.testing.conformance import AdmissionSuite


def _suite(open_url, url, **options):
    class Suite(AdmissionSuite):
        def backend(self):
            return open_url(url, Opening(**options))

    return Suite()


def test_a_store_that_follows_the_tables_passes():
    suite = _suite(open_memory, "memory://")
    suite.test_every_row_of_the_table_of_holds()
    suite.test_every_row_of_the_table_of_admissions()


def test_a_hold_of_another_kind_is_noticed(monkeypatch):
    monkeypatch.setattr("duly.backends.memory.queue.hold_of", lambda job, *_, **__: hold_for_job(job))
    with pytest.raises(AssertionError, match="blocked=False, known=True"):
        _suite(open_memory, "memory://").test_every_row_of_the_table_of_holds()


def test_another_admission_is_noticed(monkeypatch):
    monkeypatch.setattr("duly.backends.memory.runs.admit", lambda run, members: Admission.ENTER)
    with pytest.raises(AssertionError, match="full=True, when_full=skip"):
        _suite(open_memory, "memory://").test_every_row_of_the_table_of_admissions()


def test_a_change_in_sql_alone_is_noticed(monkeypatch, postgres_url):
    changed = claiming._LEND.replace("THEN 'place' ELSE", "THEN 'alone' ELSE")
    assert changed != claiming._LEND
    monkeypatch.setattr(claiming, "_LEND", changed)
    with pytest.raises(AssertionError, match="known=False, assigned=True"):
        _suite(open_postgres, postgres_url, namespace="admission_drift").test_every_row_of_the_table_of_holds()
