"""A message, and its form in a segment file of the spool.

    length:4 ‖ crc32:4 ‖ samples:2 ‖ sequence:6 ‖ message id:16 ‖ body:length        all big-endian

``samples`` stops at 65,535, and is 0 in records of earlier versions, which did not count. The checksum covers all but
itself. ``read`` returns the messages up to the first record that is cut short, damaged or impossible: a crash while
appending leaves such a tail, and everything before it is whole.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from spm import limits

_HEAD = 32
_SAMPLES_MAX = 0xFFFF


@dataclass(frozen=True, slots=True)
class Message:
    """One push: its place in the order, its id for ever, its body as it goes over the wire (gzip), what that holds."""

    sequence: int
    message_id: bytes
    body: bytes
    samples: int = 0


def encode(message: Message) -> bytes:
    """The record of a message."""
    length = len(message.body).to_bytes(4, "big")
    numbers = min(message.samples, _SAMPLES_MAX).to_bytes(2, "big") + message.sequence.to_bytes(6, "big")
    rest = numbers + message.message_id + message.body
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
    samples, sequence = int.from_bytes(head[8:10], "big"), int.from_bytes(head[10:16], "big")
    return Message(sequence, head[16:], body, samples)


def read(file: BinaryIO) -> Iterator[Message]:
    """All whole messages from the file's position."""
    while (message := read_one(file)) is not None:
        yield message
