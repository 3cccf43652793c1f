"""The identity of a message and its sender: message id, source, way of arrival, period. Pure but for random ids.

Enter by ``Sender``, ``message_id_of``, ``source_of``, ``way_of`` and ``period_of``. A way is a protocol; where many
programs speak one protocol, it is the program. The message id makes a re-sent body recognisable. It is the sender's
own (``X-Message-Id``) if there is one, else a hash of token, path and decoded body: XXH3 with 128 bits, seeded by token
and path, so that a sender could only make its own messages collide. It is random if a sample took its time from our
clock, since the body then differs each time it is parsed.
"""

import hashlib
import string
from dataclasses import dataclass
from functools import lru_cache

from xxhash import xxh3_128_digest

from spm.clock import random_bytes
from spm.errors import BadMessage
from spm.limits import MESSAGE_ID_CHARS_MAX, SOURCE_BYTES_MAX, SOURCE_PERIOD_MAX_MS
from spm.wire import Parsed

_ID_BYTES = 16
_SEEDS_CACHED = 10_000
# Protocol → part of the sender's User-Agent → way. All other senders of a protocol have the protocol's name as way.
_PROGRAMS = {
    "influx": {
        "spm-agent": "agent",
        "spm-graphite": "graphite",
        "spm-opentsdb": "opentsdb",
        "spm-statsd": "statsd",
        "telegraf": "telegraf",
        "collectd": "collectd",
    },
    "remote_write": {"prometheus": "prometheus"},
    "otlp": {"opentelemetry collector": "collector", "otelcol": "collector"},
}


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a message: its app, its source, its way of arrival, its period if announced."""

    app_id: int
    source: str
    way: str = ""
    period_ms: int = 0


def message_id_of(parsed: Parsed, *, given: str | None, token_id: int, path: str, body: bytes) -> bytes:
    """Return the message's id of 128 bits; raise ``BadMessage`` if the sender's own id is too long."""
    if given:
        return _given_id(given)
    if parsed.timeless:
        return random_bytes(_ID_BYTES)
    return xxh3_128_digest(body, _seed(token_id, path))


def source_of(given: str | None, token_id: int) -> str:
    """Return the source that the sender names, else one named after its token."""
    if not given:
        return f"token-{token_id}"
    if len(given.encode("utf-8", "replace")) > SOURCE_BYTES_MAX or not given.isprintable():
        raise BadMessage(
            "the source's name cannot be used", got=given[:80], wanted=f"{SOURCE_BYTES_MAX} printable bytes"
        )
    return given


def way_of(protocol: str, user_agent: str) -> str:
    """Return the way of a message from its protocol and its sender's User-Agent."""
    agent = user_agent[:200].lower()
    return next((way for part, way in _PROGRAMS.get(protocol, {}).items() if part in agent), protocol)


def period_of(given: str | None) -> int:
    """Return the announced period in ms (``X-SPM-Period`` has seconds); 0 for none or an unusable one."""
    text = (given or "").strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or len(text) > 12:
        return 0
    period_ms = round(float(text) * 1_000)
    return period_ms if 0 < period_ms <= SOURCE_PERIOD_MAX_MS else 0


def _given_id(given: str) -> bytes:
    if len(given) > MESSAGE_ID_CHARS_MAX:
        raise BadMessage(
            "the message id is too long", got=f"{len(given)} characters", wanted=f"at most {MESSAGE_ID_CHARS_MAX}"
        )
    if len(given) == 2 * _ID_BYTES and set(given) <= set(string.hexdigits):
        return bytes.fromhex(given)
    return _digest(given.encode("utf-8", "replace"), _ID_BYTES)


@lru_cache(maxsize=_SEEDS_CACHED)
def _seed(token_id: int, path: str) -> int:
    return int.from_bytes(_digest(f"{token_id}\n{path}\n".encode(), 8), "big")


def _digest(text: bytes, size: int) -> bytes:
    return hashlib.blake2b(text, digest_size=size, usedforsecurity=False).digest()
