"""Files that cannot be used, and what is said about them."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from duly.backends.sql.unit import STORE
from duly.backends.sqlite import connection, open_url
from duly.backends.sqlite import doctor as examine
from duly.backends.sqlite.files import file_system_of, is_remote
from duly.backends.sqlite.session import steps
from duly.errors import BackendError, BackendUnavailable
from duly.ports import Opening, Severity
from duly.testing.conformance import World


async def _refusal(path: Path) -> str:
    """What opening that file says; trying again must not help."""
    with pytest.raises(BackendError) as refused:
        await open_url(f"sqlite:///{path}", Opening()).open()
    assert not isinstance(refused.value, BackendUnavailable)
    return str(refused.value)


async def test_a_missing_directory_is_named(tmp_path):
    message = await _refusal(tmp_path / "missing" / "jobs.db")
    assert str(tmp_path / "missing") in message
    assert "create it" in message


async def test_a_directory_is_no_database(tmp_path):
    assert "is a directory" in await _refusal(tmp_path)


async def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "is not a directory" in await _refusal(tmp_path / "file" / "jobs.db")


async def test_any_other_file_is_no_database(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("This is certainly not a database, and long enough to show it. " * 20)
    message = await _refusal(path)
    assert str(path) in message
    assert "not an SQLite database" in message
    assert path.read_text().startswith("This is certainly")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")
async def test_a_place_where_nothing_can_be_created_is_refused():
    assert "cannot be opened" in await _refusal(Path("/proc/duly.db"))


async def test_a_damaged_file_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "jobs.db"
    async with open_url(f"sqlite:///{path}", Opening()) as backend:
        world = World(backend)
        await world.put(*[world.run() for _ in range(500)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    message = await _refusal(path)
    assert "damaged" in message
    assert "restore a backup" in message


async def test_a_full_disk_is_a_matter_of_time(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        world = World(backend)
        await world.put(kept := world.run())
        await backend._session.write(STORE, lambda unit: unit.all("PRAGMA max_page_count = 1"))
        with pytest.raises(BackendUnavailable, match="disk is full"):
            await world.put(*[world.run(payload=b"x" * 4000) for _ in range(100)])
        await backend._session.write(STORE, lambda unit: unit.all("PRAGMA max_page_count = 1000000"))
        await world.put(world.run())
        assert [claim.run.id for claim in await world.claim(1)] == [kept.id]


async def test_an_old_library_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    assert "SQLite 3.34.1 is too old: Duly needs 3.35.0" in await _refusal(tmp_path / "jobs.db")


async def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "network_file_system", lambda _: "nfs4")
    message = await _refusal(tmp_path / "jobs.db")
    assert "network file system (nfs4)" in message
    assert not (tmp_path / "jobs.db").exists()


_MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /srv rw - nfs4 server:/export rw
31 30 0:27 / /srv/fast rw - xfs /dev/sdb rw
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs ada@host:/ rw
33 22 0:29 / /mnt/twice rw - ext4 /dev/sdc rw
34 22 0:30 / /mnt/twice rw shared:5 master:1 - cifs //host/share rw
this line is no mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/ada", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/data", "nfs4"),
        ("/srvdata", "ext4"),
        ("/srv/fast/jobs", "xfs"),
        ("/mnt/with space/jobs", "fuse.sshfs"),
        ("/mnt/twice/jobs", "cifs"),
    ],
)
def test_the_innermost_and_latest_mount_holds_a_path(path, kind):
    assert file_system_of(Path(path), _MOUNTS) == kind


def test_without_mounts_nothing_is_known():
    assert file_system_of(Path("/srv"), "") is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.rclone", "ceph"])
def test_network_file_systems_are_known_by_type(kind):
    assert is_remote(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.lxcfs", "fuseblk"])
def test_local_file_systems_are_known_by_type(kind):
    assert not is_remote(kind)


# --- what a doctor says


@pytest.fixture
def on_a_disk(monkeypatch):
    """As if the folder for temporary files were on a disk, which depends on the machine."""
    monkeypatch.setattr(examine, "memory_file_system", lambda _: None)


async def test_a_file_in_memory_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(examine, "memory_file_system", lambda _: "tmpfs")
    async with open_url(f"sqlite:///{tmp_path}/jobs.db?synchronous=full", Opening()) as backend:
        findings = {finding.subject: finding for finding in await backend.examine()}
    assert findings["durability"].severity is Severity.WARNING
    assert "on tmpfs" in findings["durability"].message


@pytest.mark.usefixtures("on_a_disk")
async def test_a_healthy_file_is_explained(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        findings = {finding.subject: finding for finding in await backend.examine()}
    assert sqlite3.sqlite_version in findings["library"].message
    assert "write-ahead log" in findings["journal"].message
    assert findings["durability"].severity is Severity.WARNING
    assert "power loss" in findings["durability"].message
    assert f"version {steps()[-1].version}" in findings["schema"].message
    assert findings["integrity"].severity is Severity.OK
    assert findings.keys() == {
        "library", "journal", "durability", "schema", "integrity", "size", "disk", "wake-ups",
    }  # fmt: skip


@pytest.mark.usefixtures("on_a_disk")
async def test_full_synchronisation_leaves_nothing_to_warn_of(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db?synchronous=full", Opening()) as backend:
        findings = {finding.subject: finding for finding in await backend.examine()}
        [[level]] = await backend._session.write(STORE, lambda unit: unit.all("PRAGMA synchronous"))
    assert findings["durability"].severity is Severity.OK
    assert level == 2


# --- who may read it


def modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(f"{path.name}*")}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_a_new_file_and_what_is_kept_beside_it_are_readable_for_their_owner_alone(tmp_path, umask):
    before = os.umask(umask)
    try:
        async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
            world = World(backend)
            await world.put(world.run())
            assert modes(tmp_path / "jobs.db") == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}
    finally:
        os.umask(before)


async def test_a_file_that_exists_keeps_its_mode_and_the_doctor_tells_of_it(tmp_path):
    path = tmp_path / "jobs.db"
    path.touch()
    for mode, warned in ((0o660, False), (0o644, True)):
        path.chmod(mode)
        async with open_url(f"sqlite:///{path}", Opening()) as backend:
            found = [finding for finding in await backend.examine() if finding.subject == "privacy"]
            assert modes(path)["jobs.db"] == mode
            assert bool(found) is warned
            assert all("chmod o=" in finding.message for finding in found)
