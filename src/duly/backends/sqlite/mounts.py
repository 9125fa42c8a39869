"""What kind of file system a file lies on, as far as the kernel tells: a network's, or memory."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")

# Locks and shared memory do not reach across machines there, or not reliably.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "glusterfs", "gpfs", "davfs"}
)
_REMOTE_FUSE = frozenset(
    {"sshfs", "s3fs", "rclone", "glusterfs", "ceph", "curlftpfs", "davfs2", "gcsfuse", "juicefs", "mfs", "vmhgfs-fuse"}
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def network_file_system(directory: Path) -> str | None:
    """The type of the network file system that holds a directory; None when it is local or nobody knows."""
    kind = _kind_of(directory)
    return kind if kind is not None and is_remote(kind) else None


def memory_file_system(directory: Path) -> str | None:
    """The type of the file system in memory that holds a directory; None when it is on a disk or nobody knows."""
    kind = _kind_of(directory)
    return kind if kind in _IN_MEMORY else None


def _kind_of(directory: Path) -> str | None:
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return file_system_of(directory.resolve(), mounts)


def is_remote(kind: str) -> bool:
    """Whether a type of file system, as the kernel names it, lives on another machine."""
    return kind in _REMOTE or kind.removeprefix("fuse.") in _REMOTE_FUSE


def file_system_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds an absolute path, by the text of `mountinfo`."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        mount = _mount(line)
        if mount is None or not path.is_relative_to(mount[0]):
            continue
        depth = len(Path(mount[0]).parts)
        if best is None or depth >= best[0]:  # of two mounts on one point the later hides the earlier
            best = (depth, mount[1])
    return None if best is None else best[1]


def _mount(line: str) -> tuple[str, str] | None:
    """Mount point and type: the fifth field, and the first one after the dash that ends the optional fields."""
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        return _unescaped(fields[4]), fields[dash + 1]
    except (ValueError, IndexError):
        return None


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
