"""The keys of every table, and the only module that knows what a shard is.

All fields are fixed-width and big-endian; times and hours are stored as their type's maximum minus their value, so that
newer rows sort first. For all other modules a shard is an opaque value. Drawings: FORMAT.md.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from spm.errors import IntegrityError
from spm.store import placement
from spm.store.placement import BYTE, HASH, U64Array

__all__ = ["BYTE", "HASH"]  # names of placement functions, for the users of placement epochs

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
}

_SERIES = struct.Struct(">BIQQ")
_SERIES_ROW = np.dtype([("salt", "u1"), ("app", ">u4"), ("metric", ">u8"), ("series", ">u8")])
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
    """The key of one block: HourShard (shard, app, hour), the batch's oldest ingest time, batch id."""

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
    """The key of the commit record of one batch in one shard."""

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
        """The key of this batch's block for ``hour``."""
        return LogKey(self.shard, self.app, hour, self.ingest_ms, self.batch)


def hour_column(hour: int) -> bytes:
    """The column of the pending record's cell for ``hour``."""
    return hour.to_bytes(4, "big")


def column_hour(column: bytes) -> int:
    """The hour of such a column."""
    return int.from_bytes(column, "big")


def series(app: int, metric: int, series_id: int) -> bytes:
    """The key of one series' canonical form."""
    return _SERIES.pack(_salt(app, metric), app, metric, series_id)


def series_many(apps: npt.NDArray[np.uint32], metrics: U64Array, series_ids: U64Array) -> list[bytes]:
    """The keys of many series' canonical forms."""
    rows = np.empty(len(series_ids), _SERIES_ROW)
    rows["salt"] = np.fromiter(map(_salt, apps.tolist(), metrics.tolist()), np.uint8, len(rows))
    rows["app"], rows["metric"], rows["series"] = apps, metrics, series_ids
    raw, width = rows.tobytes(), rows.itemsize
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def parse_series(key: bytes) -> tuple[int, int]:
    """(metric id, series id) of a key of `series`."""
    _, _, metric, series_id = _SERIES.unpack(key)
    return metric, series_id


def parse_series_many(names: Sequence[bytes]) -> tuple[U64Array, U64Array]:
    """(metric ids, series ids) of many keys of `series`."""
    rows = np.frombuffer(b"".join(names), np.dtype([("app", "V5"), ("metric", ">u8"), ("series", ">u8")]))
    return rows["metric"].astype(np.uint64), rows["series"].astype(np.uint64)


def series_ranges(app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every series of ``app``."""
    return [prefix_range(struct.pack(">BI", salt, app)) for salt in range(SALTS)]


def chunk(shard: int, app: int, metric: int, hour: int, generation: int, page: int) -> bytes:
    """The key of one page of one metric and hour of one generation."""
    return _CHUNK.pack(shard, app, metric, U32 - hour, generation, page)


def chunk_heads(shard: int, app: int, metrics: Iterable[int]) -> list[bytes]:
    """The first bytes of the keys of each metric's pages, which do not depend on the hour."""
    head = _CHUNK_HEAD.pack(shard, app)
    return [head + metric.to_bytes(8, "big") for metric in metrics]


def chunks(heads: Iterable[bytes], hour: int, generation: int, page: int) -> list[bytes]:
    """The keys of the page with this number, one per head of a metric."""
    tail = _CHUNK_TAIL.pack(U32 - hour, generation, page)
    return [head + tail for head in heads]


def parse_chunk(key: bytes) -> tuple[int, int, int, int, int, int]:
    """(shard, app, metric, hour, generation, page)."""
    shard, app, metric, hour, generation, page = _CHUNK.unpack(key)
    return shard, app, metric, U32 - hour, generation, page


def timeline(shard: int, app: int, hour: int, generation: int, page: int) -> bytes:
    """The key of one page of a HourShard's timelines."""
    return _TIMELINE.pack(shard, app, U32 - hour, generation, page)


def parse_timeline(key: bytes) -> tuple[int, int, int, int, int]:
    """(shard, app, hour, generation, page)."""
    shard, app, hour, generation, page = _TIMELINE.unpack(key)
    return shard, app, U32 - hour, generation, page


def inputs(shard: int, app: int, hour: int, generation: int) -> bytes:
    """The key of a generation's inputs."""
    return _INPUTS.pack(shard, app, U32 - hour, generation)


def parse_inputs(key: bytes) -> tuple[int, int, int, int]:
    """(shard, app, hour, generation)."""
    shard, app, hour, generation = _INPUTS.unpack(key)
    return shard, app, U32 - hour, generation


def hours(shard: int, app: int, metric: int, day: int, generation: int, page: int) -> bytes:
    """The key of a page of hourly aggregates of one metric and day."""
    return _CHUNK.pack(shard, app, metric, U32 - day, generation, page)


def days(shard: int, app: int, metric: int, month: int, generation: int, page: int) -> bytes:
    """The key of a page of daily aggregates of one metric and month."""
    return _CHUNK.pack(shard, app, metric, U32 - month, generation, page)


def manifest(app: int, day: int) -> bytes:
    """The key of the manifest of (app, day)."""
    return _MANIFEST.pack(_salt(app, day), app, U32 - day)


def manifest_month(app: int, month: int) -> bytes:
    """The key of the manifest of (app, month), which names the rows of `days`. Months are counted from 1970-01."""
    return _MANIFEST.pack(_salt(app, month), app, U32 - (month | _MONTH))


def manifest_ranges(app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every manifest of ``app``."""
    return [prefix_range(struct.pack(">BI", salt, app)) for salt in range(SALTS)]


def parse_manifest(key: bytes) -> tuple[int, bool]:
    """(day or month number, whether it is a month)."""
    number = U32 - _MANIFEST.unpack(key)[2]
    return number & ~_MONTH, bool(number & _MONTH)


def ledger(app: int, minute: int, writer: int, sequence: int) -> bytes:
    """The key of one ledger row."""
    return _LEDGER.pack(app, U32 - minute, writer, sequence)


class LedgerKey(NamedTuple):
    """A key of `ledger`. ``writer``, ``sequence``: a batch with hour and shard of a row, or a hash."""

    app: int
    minute: int
    writer: int
    sequence: int


def parse_ledger(key: bytes) -> LedgerKey:
    """The parts of a key of `ledger`."""
    app, minute, writer, sequence = _LEDGER.unpack(key)
    return LedgerKey(app, U32 - minute, writer, sequence)


def watermark(app: int, process: int) -> bytes:
    """The key of one accepting process' watermark."""
    return struct.pack(">II", app, process)


def parse_watermark(key: bytes) -> int:
    """The process of a key of `marks`."""
    return int(struct.unpack(">II", key)[1])


def retraction(app: int, number: int) -> bytes:
    """The key of one retraction."""
    return struct.pack(">IQ", app, number)


def retraction_range(app: int) -> tuple[bytes, bytes]:
    """The key range of an app's retractions, by number."""
    return prefix_range(struct.pack(">I", app))


def dead(app: int, ingest_ms: int, message: bytes) -> bytes:
    """The key of one dead letter."""
    return struct.pack(">IQ16s", app, U64 - ingest_ms, message)


def parse_dead(key: bytes) -> tuple[int, int]:
    """(app, ingest ms) of a key of `dead`."""
    app, ms, _ = struct.unpack(">IQ16s", key)
    return app, U64 - ms


def dead_range(app: int, before: bytes | None = None) -> tuple[bytes, bytes]:
    """The key range of an app's dead letters, newest first; with ``before`` only those older than this row."""
    start, stop = prefix_range(struct.pack(">I", app))
    return (before + b"\0" if before else start), stop


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """The range of all keys that begin with ``prefix``."""
    stop = prefix.rstrip(b"\xff")
    return prefix, (stop[:-1] + bytes([stop[-1] + 1])) if stop else b"\xff" * 64


def log_range(shard: int, app: int, hour: int | None = None) -> tuple[bytes, bytes]:
    """The key range of an app's blocks in a shard, of one hour or of all."""
    head = struct.pack(">BI", shard, app)
    return prefix_range(head if hour is None else head + struct.pack(">I", U32 - hour))


def app_range(shard: int, app: int) -> tuple[bytes, bytes]:
    """The key range of an app in a shard, for any table whose keys begin with shard ‖ app."""
    return prefix_range(struct.pack(">BI", shard, app))


def hours_range(shard: int, app: int, first: int, last: int) -> tuple[bytes, bytes]:
    """The key range of an app in a shard between two hours, both included: for `log`, `timelines` and `inputs`."""
    return struct.pack(">BII", shard, app, U32 - last), prefix_range(struct.pack(">BII", shard, app, U32 - first))[1]


def batch_ledger_rows(app: int, minute: int, batch: int) -> tuple[bytes, bytes]:
    """The key range of the ledger rows that runs wrote for one batch; ``minute``: that of its oldest message."""
    return prefix_range(struct.pack(">IIQ", app, U32 - minute, batch))


def app_ranges(table: str, app: int) -> list[tuple[bytes, bytes]]:
    """The key ranges that together hold every row of an app in a table, in all shards of any placement epoch.

    There are none for `config`, whose names are text.
    """
    if table == "config":
        return []
    if table in UNSPREAD:
        return [prefix_range(struct.pack(">I", app))]
    heads = range(SALTS if table in ("series", "manifest") else 256)
    return [prefix_range(struct.pack(">BI", head, app)) for head in heads]


def app_of(table: str, key: bytes) -> int:
    """The app that a row of any table but `config` belongs to."""
    at = 0 if table in UNSPREAD else 1
    return int.from_bytes(key[at : at + 4], "big")


_HOURS_AT = {"log": 5, "timelines": 5, "inputs": 5, "chunks": 13}


def day_of(table: str, key: bytes) -> int | None:
    """The day of a row of a table that has hours or days in its keys; of others, and of months, ``None``."""
    if table in _HOURS_AT:
        at = _HOURS_AT[table]
        return (U32 - int.from_bytes(key[at : at + 4], "big")) // 24
    if table == "hours":
        return U32 - int(_CHUNK.unpack(key)[3])
    if table == "manifest" and not parse_manifest(key)[1]:
        return parse_manifest(key)[0]
    return None


def check_app(app: int, table: str, names: Iterable[bytes]) -> None:
    """Raise ``IntegrityError`` if one of these rows, which are about to be deleted, belongs to another app."""
    for name in names:
        if app_of(table, name) != app:
            raise IntegrityError(f"a row of {table} of app {app_of(table, name)} was listed as one of app {app}")


def ledger_range(app: int, first_minute: int = 0, last_minute: int = U32) -> tuple[bytes, bytes]:
    """The key range of an app's ledger rows between two minutes, both included."""
    return struct.pack(">II", app, U32 - last_minute), prefix_range(struct.pack(">II", app, U32 - first_minute))[1]


SALTS = 16
SALTS_CACHED = 65_536  # salts that a process remembers, some 100 bytes each: most series are of few metrics
UNSPREAD = frozenset({"ledger", "marks", "retractions", "dead", "config"})  # keys begin with neither shard nor salt


def split_keys(table: str) -> list[bytes]:
    """The keys at which a new table is split: at every shard of the first placement epoch, or at every salt."""
    return [] if table in UNSPREAD else [bytes([first]) for first in range(1, SALTS)]


@lru_cache(SALTS_CACHED)
def _salt(app: int, other: int) -> int:
    """The salt that spreads an app's rows over the regions; it can never change, since it is not stored."""
    return hashlib.blake2b(struct.pack(">IQ", app, other), digest_size=1).digest()[0] % SALTS


# --- placement --------------------------------------------------------------------------------------------------------

OPEN, CLOSING, CLOSED, ENDING = range(4)  # states of an epoch (PROTOCOL 22); 4, 5, …: closing again, ending again, …


class PlacementEpoch(msgspec.Struct, frozen=True, array_like=True):
    """One placement of an app's metrics in shards, in force from its opening until its close.

    ``function`` names a placement function of ``spm.store.placement``.
    """

    number: int = 0
    function: str = HASH
    shards: int = 16
    spread: int = 1
    state: int = OPEN

    def place(self, app: int, metrics: U64Array) -> npt.NDArray[np.uint8]:
        """The shard of each metric id, u8. Raises ``PlacementUnfit``."""
        return placement.place(self.function, app, self.shards, self.spread, metrics)

    def all_shards(self, app: int) -> list[int]:
        """Every shard in which it may put data of ``app``, ascending. Raises ``PlacementUnfit``."""
        return placement.shards_of(self.function, app, self.shards, self.spread)

    @property
    def ending(self) -> bool:
        """Whether its last check for remaining data is under way: a batch put by it from now on counts for nothing."""
        return self.state >= ENDING and self.state % 2 == 1

    @property
    def counts(self) -> bool:
        """Whether every reader finds the data of this epoch that was read before the placement table."""
        return self.state != CLOSED and not self.ending

    @property
    def state_name(self) -> str:
        """Its state, for people."""
        return {OPEN: "open", CLOSED: "closed"}.get(self.state, "closing")


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """An app's epochs, oldest first. Writers use the newest; readers and runs look in all that are not closed."""

    epochs: tuple[PlacementEpoch, ...] = (PlacementEpoch(),)

    @classmethod
    def single(cls, shards: int = 16, spread: int = 1) -> "PlacementTable":
        """A table with one epoch, by hash."""
        return cls((PlacementEpoch(shards=shards, spread=spread),))

    @property
    def newest(self) -> PlacementEpoch:
        """The epoch that writers use."""
        return self.epochs[-1]

    @property
    def has_one_live_epoch(self) -> bool:
        """Whether only one epoch is not closed, so that no metric lies in two shards."""
        return sum(epoch.state != CLOSED for epoch in self.epochs) == 1

    def place(self, app: int, metrics: U64Array) -> npt.NDArray[np.uint8]:
        """The shard of each metric id, u8, by the newest epoch."""
        return self.newest.place(app, metrics)

    def all_shards(self, app: int) -> Sequence[int]:
        """Every shard in which data of ``app`` may lie, in order."""
        return sorted({shard for epoch in self.epochs if epoch.state != CLOSED for shard in epoch.all_shards(app)})

    def epoch(self, number: int) -> PlacementEpoch | None:
        """The epoch of that number, if there is one."""
        return next((epoch for epoch in self.epochs if epoch.number == number), None)

    def counts(self, number: int) -> bool:
        """Whether every reader finds the data of that epoch that was read before this table."""
        epoch = self.epoch(number)
        return epoch is not None and epoch.counts
