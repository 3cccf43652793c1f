"""Finds blocks that no row names any more, and writes their commit records again (the first part of ``fsck``).

Enter by ``find_lost_blocks``, then ``rebuild_commits``. A block is lost if its batch is in no generation in force or in
history, on no replay list and not pending: no run would ever compact it. Blocks are listed BEFORE pending records and
manifests, so that blocks that a run compacts meanwhile are in the manifests. A superfluous record is harmless: the next
run merges equal versions and settles it. A block whose writer died before it answered is treated as lost, too: its
samples were neither acked nor refused, and are stored now.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rollups.check.findings import DAMAGED, UNKNOWN, UNMARKED, Report
from rollups.decide.superseded import states_of
from rollups.delete import listing
from rollups.manifest import cells
from rollups.run import survey
from spm.errors import CorruptBlock
from spm.limits import DAY_HOURS
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader, scan_ranges
from spm.store.encoding import blocks
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.keys import LogKey, PendingKey
from spm.store.ledger import commit_records, folded_hours
from spm.store.ledger.commit_records import BatchRows, Commit, ledger_key
from spm.store.manifest import OPEN, Entry, Manifest, State
from spm.store.versions import generations
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import merge_messages

_Place = tuple[int, int]  # shard, hour


def find_lost_blocks(reader: Reader, app: int, report: Report, *, before_ms: int) -> list[LogKey]:
    """Lists blocks older than ``before_ms`` that nothing names; younger ones may be in progress."""
    shards = list(epochs.read(reader, app).all_shards(app))
    ranges = [keys.app_range(shard, app) for shard in shards]
    listed = [LogKey.parse(key) for key, _ in scan_ranges(reader, "log", ranges, keys_only=True)]
    pending = {(w.key.shard, w.hour, w.key.batch) for w in commit_records.scan(reader, app, shards)}
    manifest_cells = cells.scan_cells(reader, app)
    values = survey.decode_manifests(app, dict(manifest_cells))
    has_one_epoch = len(epochs.read(reader, app).epochs) == 1
    batches_of: dict[_Place, frozenset[int] | None] = {}
    lost = []
    for key in listed:
        if key.hour // DAY_HOURS in manifest_cells.keys() - values.keys():
            continue  # its manifest is damaged: it is unknown what it held
        value = values.get(key.hour // DAY_HOURS, Manifest())
        if (key.shard, key.hour, key.batch) in pending or key.ingest_ms >= before_ms or value.seal(key.hour) != OPEN:
            continue
        place = key.shard, key.hour
        if place not in batches_of:
            batches_of[place] = _known_batches(reader, app, place, value, report, has_one_epoch=has_one_epoch)
        known = batches_of[place]
        if known is not None and key.batch not in known:
            lost.append(key)
    return lost if has_one_epoch else _without_ledger_rows(reader, lost)


def _without_ledger_rows(reader: Reader, lost: Sequence[LogKey]) -> list[LogKey]:
    """The blocks that no run has compacted: of data moved to another shard, only the ledger knows it."""
    if not lost:
        return []
    rows = reader.get("ledger", [ledger_key(block) for block in lost], [cells.COLUMN])
    folded = folded_hours.are_compacted(reader, lost[0].app, lost)
    return [block for block, row, named in zip(lost, rows, folded, strict=True) if row is None and not named]


def _known_batches(
    reader: Reader, app: int, place: _Place, value: Manifest, report: Report, *, has_one_epoch: bool
) -> frozenset[int] | None:
    """The batches in an hour shard's generations and replay lists; ``None``: they are unknown."""
    entry = value.entries.get(place)
    if entry is not None and entry.state == State() and not entry.history:
        return frozenset() if has_one_epoch else None  # its data was moved to another shard, blocks and all
    known: set[int] = set()
    for state in states_of(entry or Entry()):
        known |= {r.batch for r in state.replay}
        for generation in state.generations:
            hour_shard = HourShard(place[0], app, place[1])
            try:
                inputs = generations.read_inputs(reader, hour_shard, generation)
            except CorruptBlock:
                inputs = None
            if inputs is None:
                key = generations.inputs_key(hour_shard, generation)
                report.add(UNKNOWN, "inputs", key, "it is unknown which blocks of this hour shard are compacted")
                return None
            known |= {r.batch for r in inputs.batches}
    return frozenset(known)


# --- writing commit records again -------------------------------------------------------------------------------------


def rebuild_commits(store: Backend, app: int, lost: Sequence[LogKey], report: Report, *, repair: bool) -> None:
    """Reports lost blocks, and with ``repair`` writes a commit record for each, with the list of rows it had before."""
    for batch in sorted({(key.ingest_ms, key.batch) for key in lost}):
        of_batch = [key for key in lost if (key.ingest_ms, key.batch) == batch]
        others = _other_commits(store, app, *batch)
        rows = _rows_of(of_batch, others)
        epoch = next((commit.epoch for commit in others), None)
        for key in of_batch:
            [row] = store.get("log", [key.to_bytes()])
            if row is None:
                continue  # a purge deleted it: its samples are in chunks
            try:
                commit = replace(commit_of(LogBlock.from_cells(row), rows, _message_ids(others)), epoch=epoch)
            except CorruptBlock as error:
                report.add(DAMAGED, "log", key.to_bytes(), str(error))
                continue
            if repair:
                record = {keys.hour_column(key.hour): commit_records.encode(commit, batch=key.batch)}
                place = PendingKey(key.shard, app, key.ingest_ms, key.batch).to_bytes()
                store.put([("pending", [(place, record)])])
            text = f"{commit.sample_count} samples of hour {key.hour} would never be compacted"
            report.add(UNMARKED, "log", key.to_bytes(), text, repaired=repair)


def _rows_of(lost: Sequence[LogKey], others: Sequence[Commit]) -> BatchRows:
    """Return the rows of a batch: those whose records are lost, and those that other records of it name."""
    unnamed = next((commit.rows for commit in others if len(commit.rows) > commit_records.BATCH_ROWS_NAMED_MAX), None)
    if unnamed is not None:  # it says how many there were in all
        return unnamed
    named = {(key.shard, key.hour) for key in lost}
    return BatchRows.of(sorted(named.union(*(commit.rows.names() for commit in others))))


def _other_commits(reader: Reader, app: int, ingest_ms: int, batch: int) -> list[Commit]:
    """Reads other commit records of the batch: pending ones, and ledger rows of those that runs have compacted."""
    commits = []
    rows = reader.scan("ledger", *keys.batch_ledger_rows(app, ingest_ms // 60_000, batch))
    cells_of = [(row.get(commit_records.COLUMN), blocks.LEDGER) for _, row in rows]
    names = [PendingKey(b, app, ingest_ms, batch).to_bytes() for b in listing.every_shard(reader, app)]
    for row in reader.get("pending", names):
        cells_of += [(cell, blocks.PENDING) for cell in (row or {}).values()]
    for cell, kind in cells_of:
        try:
            commits += [commit_records.decode(cell, kind)] if cell else []
        except CorruptBlock:
            continue
    return commits


_Stamp = tuple[int, int, int, str]


def _message_ids(commits: Iterable[Commit]) -> dict[_Stamp, bytes]:
    """The message ids by stamp."""
    names: dict[_Stamp, bytes] = {}
    for commit in commits:
        raw = commit.message_ids.tobytes()
        for i, stamp in enumerate(_stamps(commit.messages)):
            names[stamp] = raw[16 * i : 16 * i + 16]
    return names


def _stamps(table: Messages) -> list[_Stamp]:
    names = [table.sources[i] for i in table.source]
    return list(zip(table.ms.tolist(), table.process.tolist(), table.sequence.tolist(), names, strict=True))


def commit_of(parts: Sequence[LogBlock], rows: BatchRows, names: Mapping[_Stamp, bytes]) -> Commit:
    """Builds the commit record of a block. A lost message id is computed from the stamp: it only groups repeats."""
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
        rows,
    )


def _id_of(stamp: _Stamp) -> bytes:
    ms, process, sequence, source = stamp
    return hashlib.blake2b(struct.pack(">QII", ms, process, sequence) + source.encode(), digest_size=16).digest()
