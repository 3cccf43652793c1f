"""The record of a backup: which files it has, with their checksums, and what it was made of.

It is written last, so that a folder with a record is a whole backup. Enter by ``write`` and ``read``.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from spm.errors import Refused

NAME = "backup.json"
VERSION = 1
_PIECE_BYTES = 1 << 22  # of a file at once
Watch = Callable[[str, int, int], None]  # what is done, bytes done, bytes in all


class File(msgspec.Struct, frozen=True):
    """One file of a backup."""

    size_bytes: int
    sha256: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is.

    ``complete_to_ms``: all that was acknowledged before is in it. ``fingerprints``: of each secret, so that a restore
    notices another one; a secret that came from the environment is no file of the backup.
    """

    version: int = VERSION
    product: str
    begun_ms: int
    complete_to_ms: int
    ended_ms: int
    database: str  # sqlite or postgresql
    store: str  # lmdb, or hbase: then the store itself is not in it
    fingerprints: dict[str, str]
    files: dict[str, File]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files.values())


def write(folder: Path, record: Record) -> None:
    """Write the record of the files in a folder, and put all of it on the disk."""
    path = folder / NAME
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
    sync(path)
    for parent in {folder, *(path.parent for path in files_of(folder))}:
        sync(parent)


def read(folder: Path) -> Record:
    """Read the record of a backup; raise ``Refused`` where there is none, or one that this version does not know."""
    try:
        record = msgspec.json.decode((folder / NAME).read_bytes(), type=Record)
    except FileNotFoundError as error:
        wanted = f"a folder that `bin/manage backup` made, with its {NAME}"
        raise Refused("this is no whole backup", got=str(folder), wanted=wanted) from error
    except (OSError, msgspec.DecodeError) as error:
        raise Refused("the record of the backup cannot be read", got=f"{folder / NAME}: {error}") from error
    if record.version != VERSION:
        raise Refused(
            "the backup has a form that this version does not know",
            got=record.version,
            wanted=VERSION,
            remedy=f"Restore it with version {record.product} of the product.",
        )
    return record


def check_files(folder: Path, record: Record, watch: Watch) -> None:
    """Raise ``Refused`` if a file of the backup is not what was written."""
    done = 0
    for name, expected in record.files.items():
        path = folder / name
        if not path.is_file():
            raise Refused("a file of the backup is missing", got=str(path), remedy="Use another backup.")
        digest = hashlib.sha256()
        for piece in _pieces(path):
            digest.update(piece)
            done += len(piece)
            watch("checking", done, record.size_bytes)
        if (path.stat().st_size, digest.hexdigest()) != (expected.size_bytes, expected.sha256):
            raise Refused(
                "a file of the backup is not what was written",
                got=f"{path}, {path.stat().st_size:,} bytes, SHA-256 {digest.hexdigest()}",
                wanted=f"{expected.size_bytes:,} bytes, SHA-256 {expected.sha256}",
                remedy="Use another backup.",
            )


def describe(folder: Path, watch: Watch) -> dict[str, File]:
    """Return the files in a folder, each of them on the disk now."""
    paths = files_of(folder)
    total, done, files = sum(path.stat().st_size for path in paths), 0, {}
    for path in paths:
        digest = hashlib.sha256()
        for piece in _pieces(path):
            digest.update(piece)
            done += len(piece)
            watch("adding up checksums", done, total)
        sync(path)
        files[path.relative_to(folder).as_posix()] = File(path.stat().st_size, digest.hexdigest())
    return files


def files_of(folder: Path) -> list[Path]:
    """List the files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sync(path: Path) -> None:
    """Put a file or a folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
