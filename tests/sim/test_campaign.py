"""Clusters of real nodes in virtual time: hundreds of seeds, none of which may break a promise."""

import subprocess
import sys

import pytest

from duly.testing.sim.campaign import SCENARIOS, play

CHUNK = 10
CHUNKS = {
    "storm": 16,
    "steps": 4,
    "outage": 5,
    "rolling": 3,
    "storm-assign": 2,
    "steps-assign": 1,
    "outage-assign": 1,
    "rolling-assign": 1,
}


@pytest.mark.parametrize(
    ("scenario", "chunk"), [(scenario, chunk) for scenario, chunks in CHUNKS.items() for chunk in range(chunks)]
)
def test_no_seed_breaks_a_promise(scenario, chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        verdict = play(scenario, seed)
        assert not verdict.violations, f"{verdict.violations[0]}\nagain: {verdict.command}"
        assert not verdict.repeated, f"{verdict.repeated} began more than once\nagain: {verdict.command}"
        assert verdict.begun > 30  # something did happen


def test_every_scenario_is_played():
    assert set(CHUNKS) == set(SCENARIOS)


def test_the_same_seed_plays_the_same():
    first, second = play("storm", 7), play("storm", 7)
    assert (first.steps, first.begun) == (second.steps, second.begun)


def test_the_command_plays_a_seed_and_sums_up():
    done = subprocess.run(
        [sys.executable, "-m", "duly.testing.sim", "--scenario", "rolling", "--seeds", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 seeds" in done.stdout


def test_a_wrong_range_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "duly.testing.sim", "--seeds", "many"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'many'" in done.stderr
