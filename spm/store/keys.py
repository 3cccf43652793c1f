"""The keys of every table, and the one place that knows what a shard is.

All fields are fixed-width and big-endian; times and hours stand subtracted from their type's maximum, so that newer
sorts first. Elsewhere a shard is an opaque value that this module hands out and takes back. Drawings: FORMAT.md.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from spm.store import placement
from spm.store.placement import BYTE, HASH, U64Array

__all__ = ["BYTE", "HASH"]  # of strategies, for who asks here where things lie

U32, U48, U64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF

# table -> width of its row key in bytes; None: free text (config)
TABLES: dict[str, int | None] = {
    "series": 21,
    "log": 25,
    "pending": 21,
    "chunks": 27,
    "timelines": 19,
    "inputs": 17,
    "hours": 27,
    "days": 27,
    "manifest": 9,
    "ledger": 20,
    "marks": 8,
    "retractions": 12,
    "dead": 28,
    "config": None,
    "events": 13,
}

_SERIES = struct.Struct(">BIQQ")
_LOG = struct.Struct(">BIIQQ")
_PENDING = struct.Struct(">BIQQ")
_CHUNK = struct.Struct(">BIQIQH")
_CHUNK_HEAD, _CHUNK_TAIL = struct.Struct(">BI"), struct.Struct(">IQH")
_TIMELINE = struct.Struct(">BIIQH")
_INPUTS = struct.Struct(">BIIQ")
_MANIFEST = struct.Struct(">BII")
_LEDGER = struct.Struct(">IIQI")
_MONTH = 0x8000_0000  # a manifest row of a month has this bit in its (un-complemented) number


@dataclass(frozen=True, slots=True)
class LogKey:
    """Where one block lies: unit (shard, app, hour), the batch's oldest ingest time, batch id."""

    shard: int
    app: int
    hour: int
    ingest_ms: int
    batch: int

    def to_bytes(self) -> bytes:
        return _LOG.pack(self.shard, self.app, U32 - self.hour, U64 - self.ingest_ms, self.batch)

    @classmethod
    def parse(cls, key: bytes) -> "LogKey":
        shard, app, hour, ms, batch = _LOG.unpack(key)
        return cls(shard, app, U32 - hour, U64 - ms, batch)


@dataclass(frozen=True, slots=True)
class PendingKey:
    """The commit record of one batch in one shard."""

    shard: int
    app: int
    ingest_ms: int
    batch: int

    def to_bytes(self) -> bytes:
        return _PENDING.pack(self.shard, self.app, U64 - self.ingest_ms, self.batch)

    @classmethod
    def parse(cls, key: bytes) -> "PendingKey":
        shard, app, ms, batch = _PENDING.unpack(key)
        return cls(shard, app, U64 - ms, batch)

    def log(self, hour: int) -> LogKey:
        """The block of this batch for ``hour``."""
        return LogKey(self.shard, self.app, hour, self.ingest_ms, self.batch)


def hour_column(hour: int) -> bytes:
    """The pending record's cell of ``hour``."""
    return hour.to_bytes(4, "big")


def column_hour(column: bytes) -> int:
    """The hour of such a cell."""
    return int.from_bytes(column, "big")


def series(app: int, metric: int, series_id: int) -> bytes:
    """The row of one series' canonical form."""
    return _SERIES.pack(_salt(app, metric), app, metric, series_id)


def parse_series(key: bytes) -> tuple[int, int]:
    """(metric id, series id) of such a row."""
    _, _, metric, series_id = _SERIES.unpack(key)
    return metric, series_id


def parse_series_many(names: Sequence[bytes]) -> tuple[U64Array, U64Array]:
    """(metric ids, series ids) of many such rows."""
    rows = np.frombuffer(b"".join(names), np.dtype([("app", "V5"), ("metric", ">u8"), ("series", ">u8")]))
    return rows["metric"].astype(np.uint64), rows["series"].astype(np.uint64)


def series_ranges(app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every series of ``app``."""
    return [prefix_range(struct.pack(">BI", salt, app)) for salt in range(SALTS)]


def chunk(shard: int, app: int, metric: int, hour: int, generation: int, page: int) -> bytes:
    """One page of one metric and hour of one generation."""
    return _CHUNK.pack(shard, app, metric, U32 - hour, generation, page)


def chunk_heads(shard: int, app: int, metrics: Iterable[int]) -> list[bytes]:
    """What the keys of each of these metrics' pages begin with, whatever the hour."""
    head = _CHUNK_HEAD.pack(shard, app)
    return [head + metric.to_bytes(8, "big") for metric in metrics]


def chunks(heads: Iterable[bytes], hour: int, generation: int, page: int) -> list[bytes]:
    """The page of this number of each of the metrics with these heads."""
    tail = _CHUNK_TAIL.pack(U32 - hour, generation, page)
    return [head + tail for head in heads]


def parse_chunk(key: bytes) -> tuple[int, int, int, int, int, int]:
    """(shard, app, metric, hour, generation, page)."""
    shard, app, metric, hour, generation, page = _CHUNK.unpack(key)
    return shard, app, metric, U32 - hour, generation, page


def timeline(shard: int, app: int, hour: int, generation: int, page: int) -> bytes:
    """One page of a unit's pool of timelines."""
    return _TIMELINE.pack(shard, app, U32 - hour, generation, page)


def parse_timeline(key: bytes) -> tuple[int, int, int, int, int]:
    """(shard, app, hour, generation, page)."""
    shard, app, hour, generation, page = _TIMELINE.unpack(key)
    return shard, app, U32 - hour, generation, page


def inputs(shard: int, app: int, hour: int, generation: int) -> bytes:
    """What a generation was made of."""
    return _INPUTS.pack(shard, app, U32 - hour, generation)


def parse_inputs(key: bytes) -> tuple[int, int, int, int]:
    """(shard, app, hour, generation)."""
    shard, app, hour, generation = _INPUTS.unpack(key)
    return shard, app, U32 - hour, generation


def hours(shard: int, app: int, metric: int, day: int, generation: int, page: int) -> bytes:
    """Hourly aggregates of one metric and day."""
    return _CHUNK.pack(shard, app, metric, U32 - day, generation, page)


def days(shard: int, app: int, metric: int, month: int, generation: int, page: int) -> bytes:
    """Daily aggregates of one metric and month."""
    return _CHUNK.pack(shard, app, metric, U32 - month, generation, page)


def manifest(app: int, day: int) -> bytes:
    """The one manifest cell of (app, day)."""
    return _MANIFEST.pack(_salt(app, day), app, U32 - day)


def manifest_month(app: int, month: int) -> bytes:
    """The manifest cell of (app, month), which names the days in force. Months are counted from 1970-01."""
    return _MANIFEST.pack(_salt(app, month), app, U32 - (month | _MONTH))


def manifest_ranges(app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every manifest of ``app``."""
    return [prefix_range(struct.pack(">BI", salt, app)) for salt in range(SALTS)]


def parse_manifest(key: bytes) -> tuple[int, bool]:
    """(day or month number, whether it is a month)."""
    number = U32 - _MANIFEST.unpack(key)[2]
    return number & ~_MONTH, bool(number & _MONTH)


def ledger(app: int, minute: int, writer: int, sequence: int) -> bytes:
    """One write-once account row."""
    return _LEDGER.pack(app, U32 - minute, writer, sequence)


def mark(app: int, process: int) -> bytes:
    """Low-water mark of one accepting process."""
    return struct.pack(">II", app, process)


def parse_mark(key: bytes) -> int:
    """The process of such a row."""
    return int(struct.unpack(">II", key)[1])


def retraction(app: int, number: int) -> bytes:
    """One retraction."""
    return struct.pack(">IQ", app, number)


def retraction_range(app: int) -> tuple[bytes, bytes]:
    """The retractions of an app, by number."""
    return prefix_range(struct.pack(">I", app))


def dead(app: int, ingest_ms: int, message: bytes) -> bytes:
    """One dead letter."""
    return struct.pack(">IQ16s", app, U64 - ingest_ms, message)


def parse_dead(key: bytes) -> tuple[int, int]:
    """(app, ingest ms) of such a row."""
    app, ms, _ = struct.unpack(">IQ16s", key)
    return app, U64 - ms


def dead_range(app: int, before: bytes | None = None) -> tuple[bytes, bytes]:
    """The dead letters of an app, newest first; only those behind the row ``before``."""
    start, stop = prefix_range(struct.pack(">I", app))
    return (before + b"\0" if before else start), stop


def event(organisation: int, position: int) -> bytes:
    """One entry of an organisation's event stream."""
    return struct.pack(">BIQ", _salt(organisation, 0), organisation, position)


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """All keys that begin with ``prefix``."""
    stop = prefix.rstrip(b"\xff")
    return prefix, (stop[:-1] + bytes([stop[-1] + 1])) if stop else b"\xff" * 64


def log_range(shard: int, app: int, hour: int | None = None) -> tuple[bytes, bytes]:
    """Blocks of an app in a shard, of one hour or of all."""
    head = struct.pack(">BI", shard, app)
    return prefix_range(head if hour is None else head + struct.pack(">I", U32 - hour))


def app_range(shard: int, app: int) -> tuple[bytes, bytes]:
    """Rows of an app in a shard, in any table that begins with shard ‖ app."""
    return prefix_range(struct.pack(">BI", shard, app))


def hours_range(shard: int, app: int, first: int, last: int) -> tuple[bytes, bytes]:
    """Rows of an app in a shard between two hours, both included: of `log`, `timelines` and `inputs`."""
    return struct.pack(">BII", shard, app, U32 - last), prefix_range(struct.pack(">BII", shard, app, U32 - first))[1]


def batch_accounts(app: int, minute: int, batch: int) -> tuple[bytes, bytes]:
    """Account rows that a run wrote of one batch; ``minute``: that of its oldest message."""
    return prefix_range(struct.pack(">IIQ", app, U32 - minute, batch))


def app_ranges(table: str, app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every row of an app in a table, in whichever shard any distribution put it.

    None for `config`, whose names are text, and for `events`, which belong to organisations.
    """
    if table in ("config", "events"):
        return []
    if table in UNSPREAD:
        return [prefix_range(struct.pack(">I", app))]
    heads = range(SALTS if table in ("series", "manifest") else 256)
    return [prefix_range(struct.pack(">BI", head, app)) for head in heads]


def event_range(organisation: int) -> tuple[bytes, bytes]:
    """An organisation's event stream, in order."""
    return prefix_range(struct.pack(">BI", _salt(organisation, 0), organisation))


def ledger_range(app: int, first_minute: int = 0, last_minute: int = U32) -> tuple[bytes, bytes]:
    """Account rows of an app between two minutes, both inclusive."""
    return struct.pack(">II", app, U32 - last_minute), prefix_range(struct.pack(">II", app, U32 - first_minute))[1]


SALTS = 16


UNSPREAD = frozenset({"ledger", "marks", "retractions", "dead", "config"})  # keys that begin with neither


def split_keys(table: str) -> list[bytes]:
    """Where a table is cut from the beginning: at every shard of the first distribution, or at every salt."""
    return [] if table in UNSPREAD else [bytes([first]) for first in range(1, SALTS)]


def _salt(app: int, other: int) -> int:
    """Spreads rows of one app over the regions; fixed for ever, since it is not stored."""
    return hashlib.blake2b(struct.pack(">IQ", app, other), digest_size=1).digest()[0] % SALTS


# --- distribution -----------------------------------------------------------------------------------------------------

OPEN, CLOSING, CLOSED, ENDING = range(4)  # states of an epoch (PROTOCOL 22); later ones: closing again, ending again, …


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    """One way of spreading an app's metrics over shards, in force from its opening until its close.

    ``strategy`` is a name of ``strategies``, which knows how each of them places.
    """

    number: int = 0
    strategy: str = HASH
    shards: int = 16
    spread: int = 1
    state: int = OPEN

    def of(self, app: int, metrics: U64Array) -> npt.NDArray[np.uint8]:
        """The shard of each metric id, u8. Raises ``StrategyUnfit``."""
        return placement.place(self.strategy, app, self.shards, self.spread, metrics)

    def all(self, app: int) -> list[int]:
        """Every shard in which it may put data of ``app``, ascending. Raises ``StrategyUnfit``."""
        return placement.shards_of(self.strategy, app, self.shards, self.spread)

    @property
    def ending(self) -> bool:
        """Whether somebody looks if anything is left by it: nobody may count on what is put there from now on."""
        return self.state >= ENDING and self.state % 2 == 1

    @property
    def counts(self) -> bool:
        """Whether what was seen before this was read will be found by every reader, wherever it is moved."""
        return self.state != CLOSED and not self.ending

    @property
    def word(self) -> str:
        """Its state, for people."""
        return {OPEN: "open", CLOSED: "closed"}.get(self.state, "closing")


@dataclass(frozen=True, slots=True)
class Distribution:
    """An app's epochs, oldest first. Writers use the newest; readers and runs look in all that are not closed."""

    epochs: tuple[Epoch, ...] = (Epoch(),)

    @classmethod
    def single(cls, shards: int = 16, spread: int = 1) -> "Distribution":
        """One epoch, by hash."""
        return cls((Epoch(shards=shards, spread=spread),))

    @property
    def newest(self) -> Epoch:
        """Where data goes."""
        return self.epochs[-1]

    @property
    def settled(self) -> bool:
        """Whether only one epoch is not closed, so that no metric lies in two shards."""
        return sum(epoch.state != CLOSED for epoch in self.epochs) == 1

    def of(self, app: int, metrics: U64Array) -> npt.NDArray[np.uint8]:
        """The shard of each metric id, u8."""
        return self.newest.of(app, metrics)

    def all(self, app: int) -> Sequence[int]:
        """Every shard in which data of ``app`` may lie, in order."""
        return sorted({shard for epoch in self.epochs if epoch.state != CLOSED for shard in epoch.all(app)})

    def epoch(self, number: int) -> Epoch | None:
        """The epoch of that number, if there is one."""
        return next((epoch for epoch in self.epochs if epoch.number == number), None)

    def counts(self, number: int) -> bool:
        """Whether what was put by that epoch, and seen before this was read, is where every reader looks."""
        epoch = self.epoch(number)
        return epoch is not None and epoch.counts
