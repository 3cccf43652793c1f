"""The files of a spool's folder: segments, the acknowledged number, and the lock.

A segment is named by its first sequence number. Only the process that created it appends to it; a restart begins a new
one, so that nothing is written after a damaged tail. The file ``acknowledged`` holds the last acknowledged sequence
number in eight bytes with a checksum, overwritten in place. If it is lost, messages are sent again with the same ids,
and the server counts them once.
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
    """One file, and its sequence numbers, which have no gap."""

    path: Path
    first: int
    last: int
    size: int

    def waiting(self, acknowledged: int) -> int:
        """Returns how many of its messages are not acknowledged."""
        return max(0, self.last - max(acknowledged, self.first - 1))


def lock(folder: Path) -> BinaryIO:
    """Lock the folder for this process until the returned file is closed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = (folder / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise Refused("this spool belongs to another agent", got=folder, remedy="Give each agent its own.") from None
    return file


def path_of(folder: Path, first: int) -> Path:
    """Returns the path of the segment that begins with this sequence number."""
    return folder / f"{first:020d}{_SUFFIX}"


def load(folder: Path) -> tuple[list[Segment], int]:
    """Returns the segments with at least one complete message, oldest first, and how many files have a damaged tail."""
    segments, damaged = [], 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        segment = _examine(path)
        damaged += segment.size < path.stat().st_size
        if segment.size:
            segments.append(segment)
        else:
            path.unlink()
    return segments, damaged


def inspect(folder: Path) -> tuple[list[Segment], int]:
    """Returns what ``load`` does, without removing anything: an agent may be using the folder."""
    segments: list[Segment] = []
    damaged = 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(FileNotFoundError):  # acknowledged and removed by the agent
            segment = _examine(path)
            damaged += segment.size < path.stat().st_size
            segments += [segment] if segment.size else []
    return segments, damaged


def _examine(path: Path) -> Segment:
    first = last = size = 0
    with path.open("rb") as file:
        for message in read(file):
            if size and message.sequence != last + 1:
                break
            first, last, size = first or message.sequence, message.sequence, size + record_bytes(message)
    return Segment(path, first=first, last=last, size=size)


def samples_after(segment: Segment, acknowledged: int) -> int:
    """Returns the number of samples in its messages that are not acknowledged, as far as they can be read."""
    try:
        with segment.path.open("rb") as file:
            return sum(message.samples for message in read(file) if message.sequence > acknowledged)
    except OSError:
        return 0


def read_acknowledged(folder: Path) -> int | None:
    """Returns the last acknowledged sequence number, 0 before the first; None if it cannot be read."""
    try:
        text = (folder / "acknowledged").read_bytes()
    except FileNotFoundError:
        return None
    if not text:
        return 0
    valid = len(text) == 12 and zlib.crc32(text[:8]).to_bytes(4, "big") == text[8:]
    return int.from_bytes(text[:8], "big") if valid else None


def open_acknowledged(folder: Path) -> int:
    """Returns the file descriptor for ``write_acknowledged``."""
    return os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT, 0o600)


def write_acknowledged(descriptor: int, sequence: int) -> None:
    """Store that all messages up to ``sequence`` are acknowledged."""
    text = sequence.to_bytes(8, "big")
    os.pwrite(descriptor, text + zlib.crc32(text).to_bytes(4, "big"), 0)


def sync_folder(folder: Path) -> None:
    """Make new names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
