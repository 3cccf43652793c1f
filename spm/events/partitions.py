"""Which partition an event belongs to, and how many partitions a consumer may hold. Pure."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from spm.errors import BadQuery

FIELDS = ("key", "kind", "author", "text")
_BODY = "body."


def check_partition_by(text: str) -> None:
    """Raise ``BadQuery`` for what names no part of an event."""
    if text not in FIELDS and not (text.startswith(_BODY) and all(text.split("."))):
        raise BadQuery(f"partition_by={text!r}: use {', '.join(FIELDS)} or body.NAME, such as body.labels.host")


def key_of(event: Mapping[str, Any], partition_by: str) -> str:
    """Return the key of an event for a group; events that lack it have the key ""."""
    value: Any = event
    for name in partition_by.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def partition_of(key: str, count: int) -> int:
    """Return the number of the partition, from 0, that a key belongs to: always the same one."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % count


def released_and_taken(
    own: Sequence[int], free: Sequence[int], *, partitions: int, consumers: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Return what a consumer gives back and what it takes, so that in the end nobody has more than a fair share."""
    share = -(-partitions // consumers)
    return own[share:], free[: max(0, share - len(own))]
