"""What an answer rests on, in full, for `explain=1`: segments, units, generations, the last hours, retractions.

The answer's own basis says which stretches it used at which level; everything else is read anew, from one consistent
view of the store, and so may be a moment younger than the answer. Lists are bounded: the newest are named, and how many
are left out. Enter by `explanation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spm.arrays import BOOL
from spm.limits import DAY_HOURS, EXPLAINED_HOURS, EXPLAINED_UNITS_MAX, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.provenance import RAW, Basis, moment
from spm.query.rolled import retraction_effects
from spm.query.view.view import Scan
from spm.store.ledger import watermarks
from spm.store.manifest import EXPIRED, OPEN, SEALED, SEALING, Entry, Generation
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

_STATES = {OPEN: "open", SEALING: "being sealed", SEALED: "samples expired", EXPIRED: "hours expired"}
_ATTEMPT_BITS = 24
_LOOKED_BACK = 2 * EXPLAINED_HOURS  # hours with data, for who has sent for the last hours and for the ones before


def explanation(storage: AppStorage, basis: Basis, now_ms: int) -> dict[str, Any]:
    """Everything there is to say about an answer that rests on this."""
    segments = [
        {"resolution": level, "start": moment(first * HOUR_MS), "end": moment(end * HOUR_MS)}
        for level, (first, end) in sorted(basis.runs, key=lambda run: run[1])
    ]
    found: dict[str, Any] = {
        "asOf": None if basis.asof_ms is None else moment(basis.asof_ms),
        "segments": segments,
        "missing": basis.warnings(),
    }
    first, end = span_of(basis)
    begun = now_ms // HOUR_MS + 1  # of hours to come there is nothing to say, unless there is data
    end = max(min(end, begun), max((run[1] for _, run in basis.runs), default=0))
    if first < end:
        before = (first - 1) * HOUR_MS
        found |= storage.viewed(before, end * HOUR_MS, lambda scan: _units(scan, basis, first, end, now_ms))
    else:
        found |= {"units": [], "unitsLeftOut": 0, "lastHours": [], "retractions": []}
    return found


def of_samples(storage: AppStorage, start_ms: int, end_ms: int) -> Basis:
    """What a read of all samples of this stretch of time rests on, without reading them: exports and other streams."""

    def looked(scan: Scan) -> Basis:
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        for hour in scan.sealed(first, last):
            scan.ground.expired(hour, hours=False)
        scan.ground.shards.update(scan.distribution.all(scan.app))
        for hour, shards in scan.units(first, last):
            scan.ground.use(RAW, hour)
            retraction_effects.note_unread(scan, hour, shards)
        return scan.ground.basis()

    return storage.viewed(start_ms, end_ms, looked)


def span_of(basis: Basis) -> tuple[int, int]:
    """First hour and the one after the last that were asked for; (0, 0) where nothing was read."""
    runs = [run for _, run in basis.runs] + ([basis.asked] if basis.asked else [])
    return (min(run[0] for run in runs), max(run[1] for run in runs)) if runs else (0, 0)


def _units(scan: Scan, basis: Basis, first: int, end: int, now_ms: int) -> dict[str, Any]:
    held = [(hour, _concerned(scan, basis, hour, found)) for hour, found in scan.units(first - 1, end - 1, sealed=True)]
    units = [(hour, shards) for hour, shards in held if shards]
    pairs = [(hour, shard) for hour, shards in units for shard in shards if hour >= first]
    told = [r for r in scan.known.values() if r.data_from_ms < end * HOUR_MS and r.data_to_ms > first * HOUR_MS]
    then_ms = now_ms if basis.asof_ms is None else basis.asof_ms
    behind_ms = max(watermarks.lag_ms(watermarks.read(scan.reader, scan.app), now_ms) - (now_ms - then_ms), 0)
    senders = {hour: _senders(scan, hour, shards) for hour, shards in units[-_LOOKED_BACK:]}
    return {
        "units": [_unit(scan, hour, shard) for hour, shard in pairs[-EXPLAINED_UNITS_MAX:]],
        "unitsLeftOut": max(len(pairs) - EXPLAINED_UNITS_MAX, 0),
        "lastHours": [
            _hour(senders, hour, then_ms, behind_ms) for hour in range(max(first, end - EXPLAINED_HOURS), end)
        ],
        "retractions": [_retraction(r, basis) for r in sorted(told, key=lambda r: -r.number)][:EXPLAINED_UNITS_MAX],
    }


def _concerned(scan: Scan, basis: Basis, hour: int, shards: Sequence[int]) -> Sequence[int]:
    """The shards of an hour that metrics asked for may lie in: what is sealed may lie where it once belonged."""
    mine = [shard for shard in shards if shard in basis.shards]
    return mine or (shards if basis.shards and scan.seal(hour) >= SEALED else [])


def _unit(scan: Scan, hour: int, shard: int) -> dict[str, Any]:
    """One hour of a shard; what cannot be told of the time asked for is ``None``."""
    entry, day = scan.entry(shard, hour), scan.manifests.get(hour // DAY_HOURS)
    hours = day.hours.get(shard) if day else None
    pending = [(piece, _known(scan, piece)) for piece in scan.tail.pieces(shard, hour)]
    newest = [int(piece.messages.ms[known].max()) for piece, known in pending if known.any()]
    sources = _sources(scan, hour, shard)
    if _is_cut(scan, entry):
        newest = []
    elif entry.stamp_max_ms and not _is_later(scan, entry):
        newest.append(entry.stamp_max_ms)
    return {
        "start": moment(hour * HOUR_MS),
        "bucket": shard,
        "state": _STATES[scan.seal(hour)],
        "generations": [_named(generation) for generation in entry.state.generations],
        "blocksReplayed": len(entry.state.replay),
        "samplesNotCompacted": sum(int(known[piece.message].sum()) for piece, known in pending),
        "hourAggregates": _named(hours.generation) if hours and hour in hours.hours else None,
        "newestAccepted": moment(max(newest)) if newest else None,
        "sources": None if sources is None else len(sources),
    }


def _hour(senders: Mapping[int, set[str] | None], hour: int, then_ms: int, behind_ms: int) -> dict[str, Any]:
    """Whether all that was accepted for an hour, one of the last, is in the answer; and who has sent for it.

    Silent are those who sent for the last hour before it that anybody sent for. What nobody can tell is ``None``.
    """
    now, before = senders.get(hour, set()), senders.get(hour - 1, set())
    earlier = [sources for s, sources in senders.items() if s < hour]  # in the order of time
    heard = earlier[-1] if earlier else set()
    over = (hour + 1) * HOUR_MS <= then_ms
    silent = None if now is None or heard is None else heard - now
    settled = over and not behind_ms
    return {
        "start": moment(hour * HOUR_MS),
        "over": over,
        "complete": None if settled and silent is None else settled and bool(now) and not silent,
        "sources": None if now is None else len(now),
        "sourcesOfTheHourBefore": None if before is None else len(before),
        "sourcesSilentSince": None if silent is None else sorted(silent)[:EXPLAINED_HOURS],
        "acceptedNotYetVisibleForMs": behind_ms,
    }


def _senders(scan: Scan, hour: int, shards: Sequence[int]) -> set[str] | None:
    """Who has sent for an hour; ``None`` where nobody can tell."""
    found = [_sources(scan, hour, shard) for shard in shards]
    known = [sources for sources in found if sources is not None]
    return set().union(*known) if len(known) == len(found) else None


def _sources(scan: Scan, hour: int, shard: int) -> set[str] | None:
    """Of one shard. Units that runs have merged do not say who was in them by a time, nor do expired ones say who."""
    entry = scan.entry(shard, hour)
    held = bool(entry.state.generations or entry.state.replay) and not _is_later(scan, entry)
    if held and (_is_cut(scan, entry) or not entry.sources):
        return None
    found = set(entry.sources) if held else set()
    for piece in scan.tail.pieces(shard, hour):
        messages = piece.messages
        found.update(messages.sources[i] for i in np.unique(messages.source[_known(scan, piece)]))
    return found


def _known(scan: Scan, piece: Piece) -> BOOL:
    """bool[M]: the messages of a piece that were accepted by the time asked for."""
    asof_ms, ms = scan.lens.asof_ms, piece.messages.ms
    return np.ones(len(ms), np.bool_) if asof_ms is None else ms <= asof_ms


def _is_later(scan: Scan, entry: Entry) -> bool:
    """Whether all that runs have merged into a unit was accepted after the time asked for."""
    return scan.lens.asof_ms is not None and entry.stamp_min_ms > scan.lens.asof_ms


def _is_cut(scan: Scan, entry: Entry) -> bool:
    """Whether a part of it was."""
    asof_ms = scan.lens.asof_ms
    return asof_ms is not None and entry.stamp_min_ms <= asof_ms < entry.stamp_max_ms


def _retraction(found: Retraction, basis: Basis) -> dict[str, Any]:
    """``inEffect`` is ``None`` where only more reading would tell."""
    number = found.number
    return {
        "number": number,
        "inEffect": True if number in basis.retractions else None if number in basis.perhaps else False,
        "withoutEffectWhereSamplesAreGone": number in basis.too_late,
        "staysLeftOutWhereSamplesAreGone": number in basis.lasting,
        "made": moment(found.start_ms),
        "undone": moment(found.end_ms) if found.end_ms else None,
        "source": found.source or None,
        "matchers": [f"{m.name}{m.op}{m.value!r}" for m in found.matchers],
        "reason": found.reason,
        "author": found.author,
    }


def _named(generation: Generation) -> str:
    run, attempt = generation.number >> _ATTEMPT_BITS, generation.number & ((1 << _ATTEMPT_BITS) - 1)
    return f"run {run}, attempt {attempt}"
