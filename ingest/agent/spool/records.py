"""A message, and its record in a segment file of the spool.

    length:4 ‖ crc32:4 ‖ samples:2 ‖ sequence:6 ‖ message id:16 ‖ body:length        all big-endian

``samples`` is at most 65,535, and 0 in records of earlier versions, which did not count. The checksum covers everything
except itself. ``read`` returns the messages before the first record that is cut off, damaged or not valid: a crash
while appending leaves such a tail, and everything before it is complete.
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
    """One push: its sequence number, its permanent id, its compressed body (gzip), and its number of samples."""

    sequence: int
    message_id: bytes
    body: bytes
    samples: int = 0


def encode(message: Message) -> bytes:
    """Returns the record of a message."""
    length = len(message.body).to_bytes(4, "big")
    numbers = min(message.samples, _SAMPLES_MAX).to_bytes(2, "big") + message.sequence.to_bytes(6, "big")
    content = numbers + message.message_id + message.body
    return length + zlib.crc32(content, zlib.crc32(length)).to_bytes(4, "big") + content


def record_bytes(message: Message) -> int:
    """Returns the size of a message's record."""
    return _HEAD + len(message.body)


def read_one(file: BinaryIO) -> Message | None:
    """Returns the message at the file's position, or None at the end of the complete records."""
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
    """Yields all complete messages from the file's position on."""
    while (message := read_one(file)) is not None:
        yield message
