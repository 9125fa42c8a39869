"""Run the tests that need a server on every version of it that can be obtained, and show a table of the results.

python -m tests.versions                          the oldest and the newest release of every series
python -m tests.versions --every                  every release
python -m tests.versions --only "redis 7"         what begins so
python -m tests.versions --list                   obtain and show, test nothing
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

from tests.versions.releases import Build, Release, chosen, in_order, missing
from tests.versions.sources import Debian, Npm, Unobtainable, Wheels, programs_in, run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "servers"
VARIABLES = {"redis": "DULY_TEST_REDIS_SERVER", "postgres": "DULY_TEST_POSTGRES_BIN"}
NAMED = re.compile(r"(Redis|Valkey|PostgreSQL)\S* (?:server v=)?(\d[\w.]*)")


class Result(Struct, frozen=True):
    """How the tests went on one build."""

    build: Build
    passed: bool
    summary: str
    log: Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", action="store_true", help="every release, not the oldest and newest of each series")
    parser.add_argument("--only", default="", metavar="TEXT", help='for example "redis 7", "postgresql 13" or "valkey"')
    parser.add_argument("--list", action="store_true", help="test nothing")
    parser.add_argument("--cores", default="auto")
    parser.add_argument("tests", nargs="*", help="only these files or folders")
    given = parser.parse_args()
    obtained, faults = obtain(every=given.every)
    builds = [build for build in in_order(obtained) if title(build).lower().startswith(given.only.lower())]
    results = [] if given.list else [test(build, given.cores, given.tests) for build in builds]
    report(builds, results)
    for fault in faults:
        say(f"could not be obtained: {fault}")
    for series in missing(obtained):
        say(f"supported, not obtainable here: {series}")
    for result in results:
        if not result.passed:
            say(f"\n{title(result.build)}: {result.log}")
            say("\n".join(re.findall(r"^(?:FAILED|ERROR) .*$", result.log.read_text(), re.MULTILINE)))
    return 0 if all(result.passed for result in results) else 1


def obtain(*, every: bool) -> tuple[list[Build], list[str]]:
    """All builds that can be had here, and what could not be had and why."""
    debian = Debian(FOLDER)
    builds, faults = [], []
    for source in (Wheels(debian), Npm(), debian):
        try:
            releases = chosen(source.releases(), every=every)
        except Unobtainable as exc:
            faults.append(str(exc))
            continue
        for release in releases:
            try:
                builds += unpacked(release, source)
            except Unobtainable as exc:
                faults.append(f"{release.name}: {exc}")
    return builds, faults


def unpacked(release: Release, source) -> list[Build]:
    """The servers of a release, unpacked once."""
    folder = FOLDER / release.name
    done = folder / ".complete"
    if not done.exists():
        say(f"obtaining {release.name}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source.unpack(release, folder)
        done.touch()
    return [build_of(program, release) for program in programs_in(folder, release.product)]


def build_of(program: Path, release: Release) -> Build:
    said = run(str(program), "--version")
    found = NAMED.search(said)
    if found is None:
        raise Unobtainable(f"{program} says it is {said.strip()!r}")
    return Build(found[1], found[2], f"{release.source} {release.package} {release.number}", str(program))


def test(build: Build, cores: str, paths: list[str]) -> Result:
    """Run the tests on one build; their output goes into a file."""
    kind = "postgres" if build.product == "PostgreSQL" else "redis"
    program = str(Path(build.program).parent) if kind == "postgres" else build.program
    log = FOLDER / "logs" / f"{title(build)}.log".lower().replace(" ", "-").replace("/", "-")
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", cores, "--dist", "worksteal", "-rfE", "--server", kind, *paths]
    say(f"testing on {title(build)}")
    began = time.monotonic()
    with log.open("w") as output:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {VARIABLES[kind]: program}, stdout=output, stderr=output, check=False
        )
    counts = re.findall(r"\d+ (?:passed|failed|error)\w*", log.read_text().rstrip().rpartition("\n")[2])
    summary = f"{', '.join(counts) or 'no result'} in {time.monotonic() - began:.0f} s"
    say(f"  {summary}")
    return Result(build, done.returncode == 0, summary, log)


def report(builds: list[Build], results: list[Result]) -> None:
    said = {result.build: result.summary for result in results}
    rows = [(f"{build.product} {build.version}", build.source, said.get(build, "")) for build in builds]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for row in rows:
        say("  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]]).rstrip())


def title(build: Build) -> str:
    return f"{build.product} {build.version} ({build.source})"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
