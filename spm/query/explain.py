"""What an answer rests on, in full, for `explain=1`: segments, units, generations, the last hours, retractions.

The answer's own basis says which stretches it used at which level; everything else is read anew, from one consistent
view of the store, and so may be a moment younger than the answer. Lists are bounded: the newest are named, and how many
are left out. Enter by `explanation`.
"""

from __future__ import annotations

from typing import Any

from spm.limits import EXPLAINED_HOURS, EXPLAINED_UNITS_MAX, HOUR_MS
from spm.query.basis import RAW, Basis, moment
from spm.query.scan import Scan
from spm.query.storage import AppStorage
from spm.store import marks
from spm.store.manifest import EXPIRED, OPEN, SEALED, SEALING, Generation
from spm.store.retractions import Retraction

_STATES = {OPEN: "open", SEALING: "being sealed", SEALED: "samples expired", EXPIRED: "hours expired"}
_ATTEMPT_BITS = 24


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
    if basis.runs:
        found |= storage.viewed(first * HOUR_MS, end * HOUR_MS, lambda scan: _units(scan, basis, first, end, now_ms))
    else:
        found |= {"units": [], "unitsLeftOut": 0, "lastHours": [], "retractions": []}
    return found


def of_samples(storage: AppStorage, start_ms: int, end_ms: int) -> Basis:
    """What a read of all samples of this stretch of time rests on, without reading them: exports and other streams."""

    def looked(scan: Scan) -> Basis:
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        for slot in scan.sealed(first, last):
            scan.ground.expired(slot, hours=False)
        for slot, _ in scan.units(first, last):
            scan.ground.use(RAW, slot)
        return scan.ground.basis()

    return storage.viewed(start_ms, end_ms, looked)


def span_of(basis: Basis) -> tuple[int, int]:
    """First slot and the one after the last that an answer rests on; (0, 0) for one that rests on nothing."""
    runs = [run for _, run in basis.runs]
    return (min(run[0] for run in runs), max(run[1] for run in runs)) if runs else (0, 0)


def _units(scan: Scan, basis: Basis, first: int, end: int, now_ms: int) -> dict[str, Any]:
    slots = list(scan.units(first, end - 1, sealed=True))
    pairs = [(slot, bucket) for slot, buckets in slots for bucket in buckets]
    told = [r for r in scan.known.values() if r.data_from_ms < end * HOUR_MS and r.data_to_ms > first * HOUR_MS]
    behind_ms = marks.lag_ms(marks.read(scan.reader, scan.app), now_ms)
    return {
        "units": [_unit(scan, slot, bucket) for slot, bucket in pairs[-EXPLAINED_UNITS_MAX:]],
        "unitsLeftOut": max(len(pairs) - EXPLAINED_UNITS_MAX, 0),
        "lastHours": [_hour(scan, slot, now_ms, behind_ms) for slot in range(max(first, end - EXPLAINED_HOURS), end)],
        "retractions": [
            _retraction(r, r.number in basis.retractions) for r in sorted(told, key=lambda r: -r.number)
        ][:EXPLAINED_UNITS_MAX],
    }  # fmt: skip


def _unit(scan: Scan, slot: int, bucket: int) -> dict[str, Any]:
    entry, day = scan.entry(bucket, slot), scan.manifests.get(slot * HOUR_MS // (24 * HOUR_MS))
    hours = day.hours.get(bucket) if day else None
    pending = scan.tail.pieces(bucket, slot)
    return {
        "start": moment(slot * HOUR_MS),
        "state": _STATES[scan.seal(slot)],
        "generations": [_named(generation) for generation in entry.state.generations],
        "blocksReplayed": len(entry.state.replay),
        "samplesNotCompacted": sum(len(piece) for piece in pending),
        "hourAggregates": _named(hours.generation) if hours and slot in hours.slots else None,
        "newestAccepted": moment(entry.stamp_max_ms) if entry.stamp_max_ms else None,
        "sources": len(_sources(scan, slot, bucket)),
    }


def _hour(scan: Scan, slot: int, now_ms: int, behind_ms: int) -> dict[str, Any]:
    """Whether all that was accepted for an hour, one of the last, is in the answer; and who has sent for it."""
    buckets = [b for s, found in scan.units(slot - 1, slot, sealed=True) for b in found if s in (slot - 1, slot)]
    now, before = (set().union(*(_sources(scan, s, b) for b in buckets)) for s in (slot, slot - 1))
    over = (slot + 1) * HOUR_MS <= now_ms
    return {
        "start": moment(slot * HOUR_MS),
        "over": over,
        "complete": over and not behind_ms and before <= now,
        "sources": len(now),
        "sourcesOfTheHourBefore": len(before),
        "sourcesSilentSince": sorted(before - now)[:EXPLAINED_HOURS],
        "acceptedNotYetVisibleForMs": behind_ms,
    }


def _sources(scan: Scan, slot: int, bucket: int) -> set[str]:
    pending = (name for piece in scan.tail.pieces(bucket, slot) for name in piece.messages.sources)
    return {*scan.entry(bucket, slot).sources, *pending}


def _retraction(found: Retraction, counts: bool) -> dict[str, Any]:
    return {
        "number": found.number,
        "inEffect": counts,
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
