"""Finds blocks that nobody knows of any more, and writes their commit records again (``fsck``'s third part).

Enter by ``lost``, then ``rebuild``. A block is lost when its batch is in no generation in force or in history, on no
replay list and pending nowhere: a run would never take it in. Blocks are listed BEFORE pending cells and manifests, so
that what a run takes in meanwhile is seen there. A record that is written once too often is harmless: the next run
merges equal versions and settles it. So may a block be whose writer died before it said anything: its samples were
neither acked nor refused, and come in.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rollups.check.findings import DAMAGED, UNKNOWN, UNMARKED, Report
from rollups.decide.superseded import states
from rollups.delete import listing
from rollups.manifest import cells
from rollups.run import survey
from spm.errors import CorruptBlock
from spm.limits import DAY_HOURS
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.encoding import blocks
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.keys import LogKey, PendingKey
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import Commit, ledger_key
from spm.store.manifest import OPEN, Entry, Manifest, State
from spm.store.versions import generations
from spm.store.versions.generations import HourShardData
from spm.store.versions.merge import merge_messages

_Place = tuple[int, int]  # shard, hour


def lost(reader: Reader, app: int, report: Report, *, before_ms: int) -> list[LogKey]:
    """Blocks older than a moment that nothing knows of; younger ones may be on their way."""
    shards = list(epochs.read(reader, app).all(app))
    ranges = [keys.app_range(shard, app) for shard in shards]
    listed = [LogKey.parse(key) for key, _ in scan_ranges(reader, "log", ranges, keys_only=True)]
    waiting = {(w.key.shard, w.hour, w.key.batch) for w in commit_records.scan(reader, app, shards)}
    there = cells.scan_cells(reader, app)
    values = survey.decoded(app, dict(there))
    settled = len(epochs.read(reader, app).epochs) == 1
    held: dict[_Place, frozenset[int] | None] = {}
    found = []
    for key in listed:
        if key.hour // DAY_HOURS in there.keys() - values.keys():
            continue  # its manifest is damaged: what it held nobody can tell
        value = values.get(key.hour // DAY_HOURS, Manifest())
        if (key.shard, key.hour, key.batch) in waiting or key.ingest_ms >= before_ms or value.seal(key.hour) != OPEN:
            continue
        place = key.shard, key.hour
        if place not in held:
            held[place] = _held(reader, app, place, value, report, settled=settled)
        known = held[place]
        if known is not None and key.batch not in known:
            found.append(key)
    return found if settled else _unaccounted(reader, found)


def _unaccounted(reader: Reader, found: Sequence[LogKey]) -> list[LogKey]:
    """Those that no run has taken in: of what was moved to another shard only the account tells it here."""
    rows = reader.get("ledger", [ledger_key(block) for block in found], [cells.COLUMN]) if found else []
    return [block for block, row in zip(found, rows, strict=True) if row is None]


def _held(
    reader: Reader, app: int, place: _Place, value: Manifest, report: Report, *, settled: bool
) -> frozenset[int] | None:
    """Batches that a unit's generations hold or its replay lists name; ``None``: nobody can say."""
    entry = value.entries.get(place)
    if entry is not None and entry.state == State() and not entry.history:
        return frozenset() if settled else None  # its data was moved to another shard, blocks and all
    known: set[int] = set()
    for state in states(entry or Entry()):
        known |= {r.batch for r in state.replay}
        for generation in state.generations:
            unit = HourShardData(place[0], app, place[1])
            try:
                made = generations.read_inputs(reader, unit, generation)
            except CorruptBlock:
                made = None
            if made is None:
                key = generations.inputs_key(unit, generation)
                report.add(UNKNOWN, "inputs", key, "which blocks of this unit are taken in cannot be told")
                return None
            known |= {r.batch for r in made.batches}
    return frozenset(known)


# --- writing them again -----------------------------------------------------------------------------------------------


def rebuild(store: Backend, app: int, found: Sequence[LogKey], report: Report, *, repair: bool) -> None:
    """Report lost blocks, and with ``repair`` write a commit record for each: the same work list as before."""
    for batch in sorted({(key.ingest_ms, key.batch) for key in found}):
        mine = [key for key in found if (key.ingest_ms, key.batch) == batch]
        told = _told(store, app, *batch)
        rows = tuple(sorted({(k.shard, k.hour) for k in mine} | {row for commit in told for row in commit.rows}))
        epoch = next((commit.epoch for commit in told), None)
        for key in mine:
            [row] = store.get("log", [key.to_bytes()])
            if row is None:
                continue  # a purge took it: its samples are in chunks
            try:
                commit = replace(commit_of(LogBlock.from_cells(row), rows, _names(told)), epoch=epoch)
            except CorruptBlock as error:
                report.add(DAMAGED, "log", key.to_bytes(), str(error))
                continue
            if repair:
                record = {keys.hour_column(key.hour): commit_records.encode(commit, batch=key.batch)}
                place = PendingKey(key.shard, app, key.ingest_ms, key.batch).to_bytes()
                store.put([("pending", [(place, record)])])
            text = f"{commit.sample_count} samples of hour {key.hour} would never be taken in"
            report.add(UNMARKED, "log", key.to_bytes(), text, repaired=repair)


def _told(reader: Reader, app: int, ingest_ms: int, batch: int) -> list[Commit]:
    """What other records of the same batch say: pending ones, and accounts of what runs have taken in."""
    found = []
    rows = reader.scan("ledger", *keys.batch_accounts(app, ingest_ms // 60_000, batch))
    cells_of = [(row.get(commit_records.COLUMN), blocks.LEDGER) for _, row in rows]
    names = [PendingKey(b, app, ingest_ms, batch).to_bytes() for b in listing.every_shard(reader, app)]
    for row in reader.get("pending", names):
        cells_of += [(cell, blocks.PENDING) for cell in (row or {}).values()]
    for cell, kind in cells_of:
        try:
            found += [commit_records.decode(cell, kind)] if cell else []
        except CorruptBlock:
            continue
    return found


_Stamp = tuple[int, int, int, str]


def _names(told: Iterable[Commit]) -> dict[_Stamp, bytes]:
    """Message ids by stamp."""
    names: dict[_Stamp, bytes] = {}
    for commit in told:
        raw = commit.message_ids.tobytes()
        for i, stamp in enumerate(_stamps(commit.messages)):
            names[stamp] = raw[16 * i : 16 * i + 16]
    return names


def _stamps(table: Messages) -> list[_Stamp]:
    names = [table.sources[i] for i in table.source]
    return list(zip(table.ms.tolist(), table.process.tolist(), table.sequence.tolist(), names, strict=True))


def commit_of(parts: Sequence[LogBlock], rows: Collection[_Place], names: Mapping[_Stamp, bytes]) -> Commit:
    """The commit record of a block. An id nobody knows any more is made from its stamp: it only groups repeats."""
    messages, numbers = (
        (parts[0].messages, [np.arange(len(parts[0].messages), dtype=np.int32)])
        if len(parts) == 1
        else merge_messages([part.messages for part in parts])
    )
    counts = [
        np.bincount(number[part.message], minlength=len(messages)) for part, number in zip(parts, numbers, strict=True)
    ]
    ids = b"".join(names.get(stamp) or _id_of(stamp) for stamp in _stamps(messages))
    return Commit(
        messages,
        np.sum(counts, axis=0).astype(np.int64),
        np.frombuffer(ids, np.uint8).copy(),
        min(int(part.ts.min()) for part in parts),
        max(int(part.ts.max()) for part in parts),
        tuple(sorted(rows)),
    )


def _id_of(stamp: _Stamp) -> bytes:
    ms, process, sequence, source = stamp
    return hashlib.blake2b(struct.pack(">QII", ms, process, sequence) + source.encode(), digest_size=16).digest()
