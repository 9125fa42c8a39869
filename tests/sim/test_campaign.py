"""Clusters of real nodes in virtual time: hundreds of seeds, none of which may break a promise."""

import subprocess
import sys

import pytest

from tests.sim.campaign_scenarios import SCENARIOS, play

CHUNK = 10
SEEDS = {
    "storm": 160,
    "steps": 40,
    "outage": 50,
    "rolling": 30,
    "storm-shards": 40,
    "resharding": 40,
    "storm-assign": 8,
    "steps-assign": 3,
    "outage-assign": 3,
    "rolling-assign": 5,
}


@pytest.mark.parametrize(
    ("scenario", "first"), [(scenario, first) for scenario, seeds in SEEDS.items() for first in range(0, seeds, CHUNK)]
)
def test_no_seed_breaks_a_promise(scenario, first):
    for seed in range(first, min(first + CHUNK, SEEDS[scenario])):
        verdict = play(scenario, seed)
        assert not verdict.violations, f"{verdict.violations[0]}\nagain: {verdict.command}"
        assert not verdict.repeated, f"{verdict.repeated} began more than once\nagain: {verdict.command}"
        assert verdict.begun > 30  # something did happen


def test_every_scenario_is_played():
    assert set(SEEDS) == set(SCENARIOS)


def test_the_same_seed_plays_the_same():
    first, second = play("storm", 7), play("storm", 7)
    assert (first.steps, first.begun) == (second.steps, second.begun)


def test_the_command_plays_a_seed_and_sums_up():
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.campaign", "--scenario", "rolling", "--seeds", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 seeds" in done.stdout


def test_a_wrong_range_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.campaign", "--seeds", "many"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'many'" in done.stderr
