"""A message, and its form in a segment file of the spool.

    length:4 ‖ crc32:4 ‖ sequence:8 ‖ message id:16 ‖ body:length        all big-endian

The checksum covers everything but itself. ``read`` returns the messages up to the first record that is cut short,
damaged or impossible: a crash while appending leaves such a tail, and everything before it is whole.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from spm import limits

_HEAD = 32
ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Message:
    """One push: its place in the order, its id for ever, and its body as it goes over the wire (gzip)."""

    sequence: int
    message_id: bytes
    body: bytes


def encode(message: Message) -> bytes:
    """The record of a message."""
    length = len(message.body).to_bytes(4, "big")
    rest = message.sequence.to_bytes(8, "big") + message.message_id + message.body
    return length + zlib.crc32(rest, zlib.crc32(length)).to_bytes(4, "big") + rest


def record_bytes(message: Message) -> int:
    """How much room a message takes."""
    return _HEAD + len(message.body)


def read_one(file: BinaryIO) -> Message | None:
    """The message at the file's position, or None at the end of what is whole."""
    head = file.read(_HEAD)
    length = int.from_bytes(head[:4], "big")
    if len(head) < _HEAD or length > limits.AGENT_MESSAGE_BYTES_MAX:
        return None
    body = file.read(length)
    if len(body) < length or zlib.crc32(head[8:] + body, zlib.crc32(head[:4])) != int.from_bytes(head[4:8], "big"):
        return None
    return Message(int.from_bytes(head[8:16], "big"), head[16:], body)


def read(file: BinaryIO) -> Iterator[Message]:
    """All whole messages from the file's position."""
    while (message := read_one(file)) is not None:
        yield message
