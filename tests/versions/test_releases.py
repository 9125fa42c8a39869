"""Which releases of servers are tested on."""

import pytest

from tests.versions.releases import SUPPORTED, Build, Release, chosen, in_order, missing, series_of


@pytest.mark.parametrize(
    ("product", "version", "series"),
    [
        ("Redis", "7.2.4", "7.2"),
        ("Redis", "5:7.0.15-1~deb12u7", "7.0"),
        ("Valkey", "8.1.1+dfsg1-3+deb13u2", "8.1"),
        ("Valkey", "9.1.2.post2", "9.1"),
        ("PostgreSQL", "16.2", "16"),
        ("PostgreSQL", "13.23.0-beta.16", "13"),
        ("PostgreSQL", "19~rc1-1", "19"),
    ],
)
def test_the_series_of_a_version(product, version, series):
    assert series_of(product, version) == series


def releases(product, package, *numbers, numbered=True):
    return [Release(product, "PyPI", package, number, numbered=numbered) for number in numbers]


def numbers(found):
    return [release.number for release in found]


def test_the_oldest_and_the_newest_of_every_series_are_taken():
    given = releases("PostgreSQL", "x", "13.9", "13.10", "13.2", "14.1", "15.1", "15.2")
    assert numbers(chosen(given, every=False)) == ["13.2", "13.10", "14.1", "15.1", "15.2"]
    assert numbers(chosen(given, every=True)) == ["13.2", "13.9", "13.10", "14.1", "15.1", "15.2"]


def test_what_is_too_old_is_not_obtained_and_what_is_newer_than_all_we_know_is():
    assert numbers(chosen(releases("Redis", "x", "5.0.1", "6.0.9", "6.2.5", "99.1.0"), every=True)) == [
        "6.2.5",
        "99.1.0",
    ]


def test_of_a_package_with_numbers_of_another_kind_the_oldest_and_the_newest_are_taken():
    given = releases("Redis", "stack", "0.1.5", "0.1.6", "0.1.8", numbered=False)
    assert numbers(chosen(given, every=False)) == ["0.1.5", "0.1.8"]


def test_each_package_counts_for_itself():
    given = releases("Redis", "x", "6.2.5", "6.2.9") + releases("Redis", "y", "6.2.7")
    assert numbers(chosen(given, every=False)) == ["6.2.5", "6.2.9", "6.2.7"]


def test_builds_are_in_the_order_of_versions_each_once_and_only_supported_ones():
    builds = [Build("Redis", version, "PyPI x", "/x") for version in ("6.2.14", "6.2.5", "6.0.16", "6.2.14", "7.0.1")]
    assert [build.version for build in in_order(builds)] == ["6.2.5", "6.2.14", "7.0.1"]


def test_series_of_which_there_is_nothing_are_named():
    there = [Build(product, each, "apt", "/x") for product, series in SUPPORTED.items() for each in series]
    assert missing(there) == []
    assert missing([build for build in there if build.series not in {"7.0", "9.0"}]) == ["Redis 7.0", "Valkey 9.0"]
