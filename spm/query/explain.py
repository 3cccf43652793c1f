"""Explains an answer, for `explain=1`: its segments, hour-shards, generations, last hours and retractions.

The answer's own provenance says which time ranges it took from which resolution. Everything else is read anew from one
consistent view of the store, and so may be a moment younger than the answer. Lists are bounded: they name the newest
entries, and the other hour-shards are counted. Enter by `explanation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spm.arrays import BOOL
from spm.limits import DAY_HOURS, EXPLAINED_HOUR_SHARDS_MAX, EXPLAINED_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.provenance import RAW, Provenance, moment
from spm.query.rolled import retraction_effects
from spm.query.view.view import View
from spm.store.ledger import watermarks
from spm.store.manifest import EXPIRED, OPEN, SEALED, SEALING, Entry, Generation
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

_STATES = {OPEN: "open", SEALING: "being sealed", SEALED: "samples expired", EXPIRED: "hours expired"}
_ATTEMPT_BITS = 24
_HOURS_WITH_SENDERS = 2 * EXPLAINED_HOURS  # hours with data whose senders are read: the last hours and those before


def explanation(storage: AppStorage, provenance: Provenance, now_ms: int) -> dict[str, Any]:
    """The explanation of an answer with this provenance, ready for JSON."""
    segments = [
        {"resolution": resolution, "start": moment(first * HOUR_MS), "end": moment(end * HOUR_MS)}
        for resolution, (first, end) in sorted(provenance.ranges, key=lambda part: part[1])
    ]
    explained: dict[str, Any] = {
        "asOf": None if provenance.asof_ms is None else moment(provenance.asof_ms),
        "segments": segments,
        "missing": provenance.warnings(),
    }
    first, end = span_of(provenance)
    end_of_now = now_ms // HOUR_MS + 1  # future hours are explained only if they have data
    end = max(min(end, end_of_now), max((hours[1] for _, hours in provenance.ranges), default=0))
    if first < end:
        before_ms = (first - 1) * HOUR_MS
        explained |= storage.with_view(
            before_ms, end * HOUR_MS, lambda view: _details(view, provenance, first, end, now_ms)
        )
    else:
        explained |= {"units": [], "unitsLeftOut": 0, "lastHours": [], "retractions": []}
    return explained


def of_samples(storage: AppStorage, start_ms: int, end_ms: int) -> Provenance:
    """The provenance of all samples in this time range, without reading them: for exports and other streams."""

    def inspect(view: View) -> Provenance:
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        for hour in view.sealed_hours(first, last):
            view.provenance.add_expired(hour, hours=False)
        view.provenance.shards.update(view.placement.all_shards(view.app))
        for hour, shards in view.stored_hours(first, last):
            view.provenance.use(RAW, hour)
            retraction_effects.note_possible_effects(view, hour, shards)
        return view.provenance.build()

    return storage.with_view(start_ms, end_ms, inspect)


def span_of(provenance: Provenance) -> tuple[int, int]:
    """The first requested hour and the one after the last; (0, 0) where nothing was read."""
    ranges = [hours for _, hours in provenance.ranges] + ([provenance.hours] if provenance.hours else [])
    return (min(hours[0] for hours in ranges), max(hours[1] for hours in ranges)) if ranges else (0, 0)


def _details(view: View, provenance: Provenance, first: int, end: int, now_ms: int) -> dict[str, Any]:
    """The part of an explanation that is read from the store, for the hours first:end."""
    stored = [
        (hour, _requested_shards(view, provenance, hour, shards))
        for hour, shards in view.stored_hours(first - 1, end - 1, sealed=True)
    ]
    hours = [(hour, shards) for hour, shards in stored if shards]
    hour_shards = [(hour, shard) for hour, shards in hours for shard in shards if hour >= first]
    retractions = [
        r for r in view.retractions.values() if r.data_from_ms < end * HOUR_MS and r.data_to_ms > first * HOUR_MS
    ]
    answer_ms = now_ms if provenance.asof_ms is None else provenance.asof_ms
    lag_ms = max(watermarks.lag_ms(watermarks.read(view.reader, view.app), now_ms) - (now_ms - answer_ms), 0)
    senders = {hour: _senders(view, hour, shards) for hour, shards in hours[-_HOURS_WITH_SENDERS:]}
    newest = sorted(retractions, key=lambda r: -r.number)[:EXPLAINED_HOUR_SHARDS_MAX]
    return {
        "units": [_hour_shard(view, hour, shard) for hour, shard in hour_shards[-EXPLAINED_HOUR_SHARDS_MAX:]],
        "unitsLeftOut": max(len(hour_shards) - EXPLAINED_HOUR_SHARDS_MAX, 0),
        "lastHours": [
            _hour(senders, hour, answer_ms, lag_ms) for hour in range(max(first, end - EXPLAINED_HOURS), end)
        ],
        "retractions": [_retraction(retraction, provenance) for retraction in newest],
    }


def _requested_shards(view: View, provenance: Provenance, hour: int, shards: Sequence[int]) -> Sequence[int]:
    """The shards of an hour in which requested metrics may lie.

    If a sealed hour has none of them, all its shards: its rows may lie where a former placement put them.
    """
    requested = [shard for shard in shards if shard in provenance.shards]
    return requested or (shards if provenance.shards and view.seal(hour) >= SEALED else [])


def _hour_shard(view: View, hour: int, shard: int) -> dict[str, Any]:
    """One hour-shard, for the list `units`; ``None`` stands for what is unknown as of the time."""
    entry, day = view.entry(shard, hour), view.manifests.get(hour // DAY_HOURS)
    hours = day.hours.get(shard) if day else None
    pending = [(piece, _known_messages(view, piece)) for piece in view.tail.pieces(shard, hour)]
    newest = [int(piece.messages.ms[known].max()) for piece, known in pending if known.any()]
    sources = _sources(view, hour, shard)
    if _is_partly_later(view, entry):
        newest = []
    elif entry.stamp_max_ms and not _is_later(view, entry):
        newest.append(entry.stamp_max_ms)
    return {
        "start": moment(hour * HOUR_MS),
        "shard": shard,
        "bucket": shard,  # the former name of the field, until the next version
        "state": _STATES[view.seal(hour)],
        "generations": [_generation(generation) for generation in entry.state.generations],
        "blocksReplayed": len(entry.state.replay),
        "samplesNotCompacted": sum(int(known[piece.message].sum()) for piece, known in pending),
        "hourAggregates": _generation(hours.generation) if hours and hour in hours.hours else None,
        "newestAccepted": moment(max(newest)) if newest else None,
        "sources": None if sources is None else len(sources),
    }


def _hour(senders: Mapping[int, set[str] | None], hour: int, answer_ms: int, lag_ms: int) -> dict[str, Any]:
    """Whether the answer has all that was accepted for one of the last hours, and which sources have sent for it.

    A source is silent if it sent for the last earlier hour that has data, and not for this one. ``None`` stands for
    what is unknown.
    """
    sources, sources_before = senders.get(hour, set()), senders.get(hour - 1, set())
    earlier = [each for h, each in senders.items() if h < hour]  # in the order of time
    expected = earlier[-1] if earlier else set()
    is_over = (hour + 1) * HOUR_MS <= answer_ms
    silent = None if sources is None or expected is None else expected - sources
    is_settled = is_over and not lag_ms
    return {
        "start": moment(hour * HOUR_MS),
        "over": is_over,
        "complete": None if is_settled and silent is None else is_settled and bool(sources) and not silent,
        "sources": None if sources is None else len(sources),
        "sourcesOfTheHourBefore": None if sources_before is None else len(sources_before),
        "sourcesSilentSince": None if silent is None else sorted(silent)[:EXPLAINED_HOURS],
        "acceptedNotYetVisibleForMs": lag_ms,
    }


def _senders(view: View, hour: int, shards: Sequence[int]) -> set[str] | None:
    """The sources that have sent for an hour, in any of these shards; ``None`` if they are unknown."""
    by_shard = [_sources(view, hour, shard) for shard in shards]
    known = [sources for sources in by_shard if sources is not None]
    return set().union(*known) if len(known) == len(by_shard) else None


def _sources(view: View, hour: int, shard: int) -> set[str] | None:
    """The sources of an hour-shard; ``None`` if they are unknown.

    A compacted hour-shard does not say which sources it had by a time, and an expired one does not name them.
    """
    entry = view.entry(shard, hour)
    compacted = bool(entry.state.generations or entry.state.replay) and not _is_later(view, entry)
    if compacted and (_is_partly_later(view, entry) or not entry.sources):
        return None
    sources = set(entry.sources) if compacted else set()
    for piece in view.tail.pieces(shard, hour):
        messages = piece.messages
        sources.update(messages.sources[i] for i in np.unique(messages.source[_known_messages(view, piece)]))
    return sources


def _known_messages(view: View, piece: Piece) -> BOOL:
    """bool[M]: the messages of a piece that were accepted by the as-of time."""
    asof_ms, ms = view.visibility.asof_ms, piece.messages.ms
    return np.ones(len(ms), np.bool_) if asof_ms is None else ms <= asof_ms


def _is_later(view: View, entry: Entry) -> bool:
    """Whether everything compacted into an hour-shard was accepted after the as-of time."""
    return view.visibility.asof_ms is not None and entry.stamp_min_ms > view.visibility.asof_ms


def _is_partly_later(view: View, entry: Entry) -> bool:
    """Whether some of what was compacted into an hour-shard, and not all, was accepted after the as-of time."""
    asof_ms = view.visibility.asof_ms
    return asof_ms is not None and entry.stamp_min_ms <= asof_ms < entry.stamp_max_ms


def _retraction(retraction: Retraction, provenance: Provenance) -> dict[str, Any]:
    """One retraction; ``inEffect`` is ``None`` where more samples would have to be read to know it."""
    number = retraction.number
    in_effect: bool | None = number in provenance.retractions
    if not in_effect and number in provenance.possible_retractions:
        in_effect = None
    return {
        "number": number,
        "inEffect": in_effect,
        "withoutEffectWhereSamplesAreGone": number in provenance.ineffective_retractions,
        "staysLeftOutWhereSamplesAreGone": number in provenance.lasting_retractions,
        "made": moment(retraction.start_ms),
        "undone": moment(retraction.end_ms) if retraction.end_ms else None,
        "source": retraction.source or None,
        "matchers": [f"{m.name}{m.op}{m.value!r}" for m in retraction.matchers],
        "reason": retraction.reason,
        "author": retraction.author,
    }


def _generation(generation: Generation) -> str:
    run, attempt = generation.number >> _ATTEMPT_BITS, generation.number & ((1 << _ATTEMPT_BITS) - 1)
    return f"run {run}, attempt {attempt}"
