"""Events as bytes: blocks of ``text/event-stream``, or the JSON of a long poll.

A block is written once per event, not per listener. ``id:`` without data moves a browser's last id on and shows nothing
to its page. Enter by ``stream_bytes`` and ``poll_bytes``.
"""

from functools import lru_cache

import orjson

from frontend.events.hub import Batch, Event

_RESET = b'{"reason":"events were missed: load again"}'
_BLOCKS_CACHED = 512  # of the newest events, which all listeners of their apps take at about the same time


def opening_bytes(retry_ms: int, last: str) -> bytes:
    """The first block: when to connect again after an end, and the id to go on from ("": the listener has one)."""
    return b"retry: %d\n" % retry_ms + (quiet_bytes(last) if last else b"\n")


def stream_bytes(batch: Batch) -> bytes:
    """A batch as blocks."""
    if batch.is_reset:
        return _block_of(batch.last, "reset", _RESET)
    return b"".join(map(_event_block, batch.events))


def quiet_bytes(last: str) -> bytes:
    """A block that shows nothing, and moves the last id on unless that is ""."""
    return b"id: %s\n\n" % last.encode() if last else b":\n\n"


def end_bytes(reason: str) -> bytes:
    """The last block of a stream that its listener may no longer read; nothing where there is no reason."""
    return b"" if not reason else b"event: end\ndata: %s\n\n" % orjson.dumps({"reason": reason})


def poll_bytes(batch: Batch | None, last: str) -> bytes:
    """The answer of a long poll."""
    if batch is None:
        return orjson.dumps({"events": [], "last": last})
    if batch.is_reset:
        events = [{"id": batch.last, "event": "reset", "data": orjson.Fragment(_RESET)}]
    else:
        events = [
            {"id": each.id_text, "event": each.news.kind, "data": orjson.Fragment(each.news.body)}
            for each in batch.events
        ]
    return orjson.dumps({"events": events, "last": batch.last})


@lru_cache(maxsize=_BLOCKS_CACHED)
def _event_block(event: Event) -> bytes:
    return _block_of(event.id_text, event.news.kind, event.news.body)


def _block_of(id_text: str, kind: str, body: bytes) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_text.encode(), kind.encode(), body)
