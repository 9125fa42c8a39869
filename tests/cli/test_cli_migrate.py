"""`duly migrate`: what it applies, and that it says so once."""

import secrets

from tests.cli.cli_support import invoke


def test_a_new_file_is_migrated_once(tmp_path):
    url = f"sqlite:///{tmp_path}/new.db"
    steps = ("0001_initial", "0002_sharing", "0003_unique", "0004_job_index", "0005_run_readings", "0006_run_lines")
    assert invoke("migrate", "--url", url).stdout == "".join(f"applied {step}\n" for step in steps)
    assert invoke("migrate", "--url", url).stdout == f"{url} is up to date\n"
    assert "[]" in invoke("jobs", "--url", url, "--json").stdout


def test_a_database_is_migrated_once_also_where_opening_must_not(postgres_url):
    namespace = f"cli_{secrets.token_hex(6)}"
    url = f"{postgres_url}?migrate=no"
    refused = invoke("jobs", "--namespace", namespace, "--url", url, code=1)
    assert "run `duly migrate`" in refused.stderr
    assert invoke("migrate", "--namespace", namespace, "--url", url).stdout.startswith("applied 0001_initial\n")
    again = invoke("migrate", "--namespace", namespace, "--url", url).stdout
    assert again.endswith("is up to date\n")
    assert "in-tests-only" not in again
    assert "[]" in invoke("jobs", "--namespace", namespace, "--url", url, "--json").stdout


def test_a_store_without_a_schema_is_up_to_date():
    assert invoke("migrate", "--url", "memory://").stdout == "memory:// is up to date\n"
