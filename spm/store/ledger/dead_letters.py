"""Dead letters: what can never be stored or shown, kept with its cause for whoever repairs it.

Four kinds lie in the table `dead`: what no row may hold of a message (``MESSAGE``, the body is an envelope); a copy of
a stored row that failed its checksum (``ROW``, the body is that row's bytes); what an agent sent that nobody could take
(``BODY``, as it came); and what came from our own queue and is no envelope (``TORN``). Writing one twice is harmless.
The key's 16 bytes are a hash: of the message, its stamp and the cause, of the damaged row's place, or of a body and its
cause. What became of a letter stands in a cell of its own, set once. Enter by ``step``, ``newest`` and ``settle``.
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
NOBODY = 0  # the app of letters of which nobody vouches whose they are; no app has this number
WAITING, REPLAYED, DISMISSED = range(3)  # what became of a letter


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """One dead letter; ``table`` and ``key`` of a damaged row. The ``key`` of a body as it came is its ``BodyDescription``."""

    kind: int
    cause: str
    body: bytes
    table: str = ""
    key: bytes = b""
    state: int = WAITING

    def about(self) -> "BodyDescription":
        """What is known of a body as it came; raises ``CorruptBlock``."""
        return blocks.as_record(self.key, BodyDescription)


class BodyDescription(msgspec.Struct, frozen=True, array_like=True):
    """What a body's sender said of it, and its whole size: a cell holds the first bytes of a very large one."""

    source: str
    media: str
    encoding: str
    message_id: str
    size: int

    def to_bytes(self) -> bytes:
        """As a letter's ``key``."""
        return msgspec.msgpack.encode(self)


def step(app: int, ingest_ms: int, name: bytes, letter: DeadLetter) -> Step:
    """The step that puts a letter under its 16 bytes of name."""
    return "dead", [(keys.dead(app, ingest_ms, name), {COLUMN: blocks.encode_record(blocks.DEAD, letter)})]


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A letter as it lies in the table; ``raw`` is its cell."""

    key: bytes
    raw: bytes
    state: int

    @property
    def app(self) -> int:
        """Whose it is."""
        return keys.parse_dead(self.key)[0]

    @property
    def ingest_ms(self) -> int:
        """When its message was accepted, or its row was found damaged."""
        return keys.parse_dead(self.key)[1]


def newest(reader: Reader, app: int, *, count: int, before: bytes | None = None) -> list[StoredDeadLetter]:
    """The newest letters of an app; those older than the row ``before`` to go on from it."""
    rows = reader.scan("dead", *keys.dead_range(app, before), limit=count)
    return [_found(key, cells) for key, cells in rows]


def find(reader: Reader, names: Sequence[bytes]) -> list[StoredDeadLetter | None]:
    """Letters by their keys; ``None`` where there is none."""
    rows = reader.get("dead", names)
    return [None if cells is None else _found(key, cells) for key, cells in zip(names, rows, strict=True)]


def settle(store: Backend, key: bytes, state: int) -> bool:
    """Say what became of a letter; whether nobody had said so before."""
    return store.check_and_put("dead", key, STATE, None, bytes([state]))


def _found(key: bytes, cells: dict[bytes, bytes]) -> StoredDeadLetter:
    return StoredDeadLetter(key, cells.get(COLUMN, b""), cells[STATE][0] if cells.get(STATE) else WAITING)


def part_name(message_id: bytes, stamp: Stamp, cause: str) -> bytes:
    """The name of the letter of samples that died of one cause: a message may die of several, or be sent again."""
    parts = b"%b%d.%d.%d %b" % (message_id, stamp.ms, stamp.process, stamp.sequence, cause.encode())
    return hashlib.blake2b(parts, digest_size=16).digest()


def body_name(letter: DeadLetter) -> bytes:
    """The name of the letter of a body that is no envelope."""
    digest = hashlib.blake2b(letter.body, digest_size=16)
    digest.update(b"\0%b\0%b" % (letter.cause.encode(), letter.key))
    return digest.digest()


def row_name(table: str, key: bytes) -> bytes:
    """The name of a damaged row's letter."""
    return hashlib.blake2b(table.encode() + b"\0" + key, digest_size=16).digest()


def decode(raw: bytes) -> DeadLetter:
    """The letter; raises ``CorruptBlock``."""
    return blocks.decode_record(blocks.DEAD, raw, DeadLetter)
