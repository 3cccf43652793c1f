"""Who counts: the name of a spool in the ids of its messages, and how much it has dropped since there is a spool.

    name:6 ‖ dropped messages:8 ‖ dropped samples:8 ‖ boot:16 ‖ next:8 ‖ crc32:4        the file ``identity``

A number must never stand for two messages. A killed agent keeps its count, as what it wrote is with the operating
system; after a power cut the newest numbers may be forgotten although the server has seen them. So a count goes on only
where it was closed in order, with the number that it would give next, or where the machine has not started anew since;
else the spool takes a new name. Counts of drops stay.
"""

import hashlib
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from spm.clock import random_bytes
from spm.message_ids import SPOOL_BYTES

_FILE = "identity"
_BODY_BYTES = SPOOL_BYTES + 8 + 8 + 16 + 8


@dataclass(frozen=True, slots=True)
class Identity:
    """A spool's name and its drops; the machine's start it is in use since; the next number, 0 until it is closed."""

    name: bytes
    messages: int = 0
    samples: int = 0
    boot: bytes = bytes(16)
    next: int = 0

    def with_drops(self, messages: int, samples: int) -> "Identity":
        """After so many more were dropped."""
        return replace(self, messages=self.messages + messages, samples=self.samples + samples)


def take_up(found: Identity | None, *, boot: bytes, number: int, certain: bool) -> Identity:
    """The identity under which a spool goes on with a number; ``certain``: nothing in its folder is damaged."""
    if found is not None and certain and (found.next == number if found.next else any(boot) and found.boot == boot):
        return replace(found, boot=boot, next=0)
    fresh = Identity(random_bytes(SPOOL_BYTES), boot=boot)
    return fresh if found is None else fresh.with_drops(found.messages, found.samples)


def this_boot() -> bytes:
    """What tells this start of the machine from every other; zeros where the system does not say."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return bytes(16)
    return hashlib.blake2b(text, digest_size=16).digest()


def read(folder: Path) -> Identity | None:
    """The identity in a spool's folder; None if there is none that is whole."""
    try:
        raw = (folder / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    body = raw[:_BODY_BYTES]
    if len(raw) != _BODY_BYTES + 4 or zlib.crc32(body).to_bytes(4, "big") != raw[_BODY_BYTES:]:
        return None
    number = int.from_bytes
    messages, samples = number(body[6:14], "big"), number(body[14:22], "big")
    return Identity(body[:6], messages, samples, body[22:38], number(body[38:], "big"))


def remove(folder: Path) -> None:
    """Leave nothing to go on with, where nothing can be written."""
    (folder / _FILE).unlink(missing_ok=True)


def write(folder: Path, identity: Identity) -> None:
    """Make it what ``read`` finds, also after a power cut: a crash leaves the old one or the new one."""
    counts = identity.messages.to_bytes(8, "big") + identity.samples.to_bytes(8, "big")
    body = identity.name + counts + identity.boot + identity.next.to_bytes(8, "big")
    half = folder / f"{_FILE}.new"
    with half.open("wb") as file:
        file.write(body + zlib.crc32(body).to_bytes(4, "big"))
        file.flush()
        os.fsync(file.fileno())
    half.replace(folder / _FILE)
