"""The identity of a spool: its name in the ids of its messages, and how much it has dropped since it exists.

    name:6 ‖ dropped messages:8 ‖ dropped samples:8 ‖ boot:16 ‖ next:8 ‖ crc32:4        the file ``identity``

One sequence number must never stand for two messages. A killed agent loses no number, because the operating system has
what it wrote. After a power cut the newest numbers may be lost although the server has received them. So the numbers
continue only if the spool was closed properly (then the file has the next number), or if the machine has not started
again since. Otherwise the spool takes a new name. The counts of drops stay.
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
    """The name and the drops of a spool; the boot id of the machine; the next number, 0 while the spool is open."""

    name: bytes
    messages: int = 0
    samples: int = 0
    boot: bytes = bytes(16)
    next: int = 0

    def with_drops(self, messages: int, samples: int) -> "Identity":
        """Returns the identity with this many more drops."""
        return replace(self, messages=self.messages + messages, samples=self.samples + samples)


def resume(stored: Identity | None, *, boot: bytes, number: int, certain: bool) -> Identity:
    """Returns the identity of a spool that continues at ``number``. ``certain``: nothing in its folder is damaged."""
    if stored is not None and certain and (stored.next == number if stored.next else any(boot) and stored.boot == boot):
        return replace(stored, boot=boot, next=0)
    fresh = Identity(random_bytes(SPOOL_BYTES), boot=boot)
    return fresh if stored is None else fresh.with_drops(stored.messages, stored.samples)


def boot_id() -> bytes:
    """Returns an id of the machine's current boot; zeros where the system has none."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return bytes(16)
    return hashlib.blake2b(text, digest_size=16).digest()


def read(folder: Path) -> Identity | None:
    """Returns the identity in a spool's folder; None if it is missing or damaged."""
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
    """Remove the file, for a disk that cannot be written: the next start then takes a new name."""
    (folder / _FILE).unlink(missing_ok=True)


def write(folder: Path, identity: Identity) -> None:
    """Store the identity so that it survives a power cut. A crash leaves the old one or the new one."""
    counts = identity.messages.to_bytes(8, "big") + identity.samples.to_bytes(8, "big")
    body = identity.name + counts + identity.boot + identity.next.to_bytes(8, "big")
    temporary = folder / f"{_FILE}.new"
    with temporary.open("wb") as file:
        file.write(body + zlib.crc32(body).to_bytes(4, "big"))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / _FILE)
