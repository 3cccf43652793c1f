"""Dead letters: what can never be stored or shown, kept with its cause for whoever repairs it.

Two kinds lie in the table `dead`: the part of a message that no row may hold (``MESSAGE``, the body is an envelope),
and a copy of a stored row that failed its checksum (``ROW``, the body is that row's bytes). Writing one twice is
harmless. The key's 16 bytes are the message id, or the hash of the damaged row's place.
"""

import hashlib

import msgspec

from spm.store import blocks, keys
from spm.store.backends.base import Step

COLUMN = b"v"
MESSAGE, ROW = range(2)
WAITING = 0  # the state of a letter nobody has looked at


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """One dead letter; ``table`` and ``key`` only for a damaged row."""

    kind: int
    cause: str
    body: bytes
    table: str = ""
    key: bytes = b""
    state: int = WAITING


def step(app: int, ingest_ms: int, name: bytes, letter: Letter) -> Step:
    """The step that puts a letter under its 16 bytes of name."""
    return "dead", [(keys.dead(app, ingest_ms, name), {COLUMN: blocks.encode_record(blocks.DEAD, letter)})]


def row_name(table: str, key: bytes) -> bytes:
    """The name of a damaged row's letter."""
    return hashlib.blake2b(table.encode() + b"\0" + key, digest_size=16).digest()


def decode(raw: bytes) -> Letter:
    """The letter; raises ``CorruptBlock``."""
    return blocks.decode_record(blocks.DEAD, raw, Letter)
