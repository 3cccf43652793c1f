"""The files of a spool's folder: segments, the mark of what is acknowledged, and the lock.

A segment is named by its first sequence number and only ever appended to, by the process that made it; a restart begins
a new one, so that a damaged tail is never written behind. The mark is eight bytes and a checksum, replaced in place: if
it is lost, messages are sent again under the same ids, which the server counts once.
"""

import fcntl
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ingest.agent.spool.records import read, record_bytes
from spm.errors import Refused

_SUFFIX = ".spool"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file, and the sequence numbers it holds without gap."""

    path: Path
    first: int
    last: int
    size: int

    def waiting(self, acknowledged: int) -> int:
        """How many of its messages are not acknowledged."""
        return max(0, self.last - max(acknowledged, self.first - 1))


def lock(folder: Path) -> BinaryIO:
    """Hold the folder for this process alone, until the returned file is closed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = (folder / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise Refused("this spool belongs to another agent", got=folder, remedy="Give each agent its own.") from None
    return file


def path_of(folder: Path, first: int) -> Path:
    """Where the segment that begins with this sequence number stands."""
    return folder / f"{first:020d}{_SUFFIX}"


def load(folder: Path) -> tuple[list[Segment], int]:
    """The segments with at least one whole message, oldest first, and how many files had a damaged tail."""
    found, damaged = [], 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        segment = _examine(path)
        damaged += segment.size < path.stat().st_size
        if segment.size:
            found.append(segment)
        else:
            path.unlink()
    return found, damaged


def survey(folder: Path) -> tuple[list[Segment], int]:
    """The same for somebody who only looks, while an agent may be at work there: nothing is removed."""
    found, damaged = [], 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(FileNotFoundError):  # settled meanwhile
            segment = _examine(path)
            damaged += segment.size < path.stat().st_size
            found += [segment] if segment.size else []
    return found, damaged


def _examine(path: Path) -> Segment:
    first = last = size = 0
    with path.open("rb") as file:
        for message in read(file):
            if size and message.sequence != last + 1:
                break
            first, last, size = first or message.sequence, message.sequence, size + record_bytes(message)
    return Segment(path, first=first, last=last, size=size)


def samples_after(segment: Segment, acknowledged: int) -> int:
    """How many samples its messages hold that are not acknowledged, as far as they can be read."""
    try:
        with segment.path.open("rb") as file:
            return sum(message.samples for message in read(file) if message.sequence > acknowledged)
    except OSError:
        return 0


def read_mark(folder: Path) -> int | None:
    """The last acknowledged sequence number, 0 before the first; None if it cannot be read."""
    try:
        text = (folder / "acknowledged").read_bytes()
    except FileNotFoundError:
        return None
    if not text:
        return 0
    whole = len(text) == 12 and zlib.crc32(text[:8]).to_bytes(4, "big") == text[8:]
    return int.from_bytes(text[:8], "big") if whole else None


def open_mark(folder: Path) -> int:
    """The file descriptor ``write_mark`` takes."""
    return os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT, 0o600)


def write_mark(descriptor: int, sequence: int) -> None:
    """Remember that everything up to ``sequence`` is settled."""
    text = sequence.to_bytes(8, "big")
    os.pwrite(descriptor, text + zlib.crc32(text).to_bytes(4, "big"), 0)


def sync_folder(folder: Path) -> None:
    """Make new names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
