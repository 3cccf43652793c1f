"""Dead letters: what can never be stored or shown, kept with its cause so that people can repair it.

The table `dead` has four kinds: the part of a message that no row may hold (``MESSAGE``, the body is an envelope); a
copy of a stored row that failed its checksum (``ROW``, the body is that row's bytes); a body from an agent that could
not be accepted (``BODY``, as it came); and a body from our own queue that is no envelope (``TORN``). Writing one twice
is harmless. The key's 16 bytes are a hash: of the message, its stamp and the cause; of the damaged row's place; or of a
body and its cause. The state of a dead letter has its own cell, set once. Enter by ``step``, ``newest``, ``settle``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from spm.store import keys
from spm.store.backends.base import Backend, Reader, Step
from spm.store.encoding import blocks
from spm.wire import Stamp

COLUMN, STATE = b"v", b"s"
MESSAGE, ROW, BODY, TORN = range(4)
UNKNOWN_APP = 0  # of dead letters whose app is not known for sure; no app has this number
WAITING, REPLAYED, DISMISSED = range(3)  # states of a dead letter


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """One dead letter. ``table`` and ``key`` name a damaged row; the ``key`` of a ``BODY`` is a ``BodyDescription``."""

    kind: int
    cause: str
    body: bytes
    table: str = ""
    key: bytes = b""
    state: int = WAITING

    def description(self) -> "BodyDescription":
        """Decode the description of a ``BODY``; raise ``CorruptBlock``."""
        return blocks.as_record(self.key, BodyDescription)


class BodyDescription(msgspec.Struct, frozen=True, array_like=True):
    """What a body's sender said of it, and its full size: of a very large body a cell holds only the first bytes."""

    source: str
    media: str
    encoding: str
    message_id: str
    size: int

    def to_bytes(self) -> bytes:
        """Encode the description as a dead letter's ``key``."""
        return msgspec.msgpack.encode(self)


def step(app: int, ingest_ms: int, name: bytes, dead_letter: DeadLetter) -> Step:
    """The step of a put that writes a dead letter under its name of 16 bytes."""
    return "dead", [(keys.dead(app, ingest_ms, name), {COLUMN: blocks.encode_record(blocks.DEAD, dead_letter)})]


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A row of the table `dead`; ``raw`` is its cell."""

    key: bytes
    raw: bytes
    state: int

    @property
    def app(self) -> int:
        return keys.parse_dead(self.key)[0]

    @property
    def ingest_ms(self) -> int:
        """When its message was accepted or its row was set aside."""
        return keys.parse_dead(self.key)[1]


def newest(reader: Reader, app: int, *, count: int, before: bytes | None = None) -> list[StoredDeadLetter]:
    """Read the newest dead letters of an app, or the newest of those older than the row ``before``."""
    rows = reader.scan("dead", *keys.dead_range(app, before), limit=count)
    return [_stored_dead_letter(key, cells) for key, cells in rows]


def find(reader: Reader, names: Sequence[bytes]) -> list[StoredDeadLetter | None]:
    """Read dead letters by their keys; ``None`` where there is none."""
    rows = reader.get("dead", names)
    return [None if cells is None else _stored_dead_letter(key, cells) for key, cells in zip(names, rows, strict=True)]


def settle(store: Backend, key: bytes, state: int) -> bool:
    """Set the state of a dead letter; return False if it had been set before."""
    return store.check_and_put("dead", key, STATE, None, bytes([state]))


def _stored_dead_letter(key: bytes, cells: dict[bytes, bytes]) -> StoredDeadLetter:
    return StoredDeadLetter(key, cells.get(COLUMN, b""), cells[STATE][0] if cells.get(STATE) else WAITING)


def part_name(message_id: bytes, stamp: Stamp, cause: str, part: int = 0) -> bytes:
    """The name of a dead letter with a message's samples of one cause; ``part`` counts those of very many samples."""
    parts = b"%b%d.%d.%d %b" % (message_id, stamp.ms, stamp.process, stamp.sequence, cause.encode())
    parts += b"\0%d" % part if part else b""  # the first one is named as it was when it was the only one
    return hashlib.blake2b(parts, digest_size=16).digest()


def body_name(dead_letter: DeadLetter) -> bytes:
    """The name of the dead letter of a body that is no envelope."""
    digest = hashlib.blake2b(dead_letter.body, digest_size=16)
    digest.update(b"\0%b\0%b" % (dead_letter.cause.encode(), dead_letter.key))
    return digest.digest()


def row_name(table: str, key: bytes) -> bytes:
    """The name of the dead letter of a damaged row."""
    return hashlib.blake2b(table.encode() + b"\0" + key, digest_size=16).digest()


def decode(raw: bytes) -> DeadLetter:
    """Decode a dead letter; raise ``CorruptBlock``."""
    return blocks.decode_record(blocks.DEAD, raw, DeadLetter)
