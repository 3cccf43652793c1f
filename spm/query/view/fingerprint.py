"""The state of an app's samples at one moment, hour by hour: equal states mean equal samples.

The state of an hour is that of its hour-shards in force: rows under these generations and replay lists are written only
once. An hour with un-compacted or expired samples is unsettled and has no state. Whatever else decides about samples
(retractions, the placement, rows in quarantine) is common to all hours. Enter by ``SampleFingerprint``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spm.query.view.tail import TailView
from spm.store.manifest import SEALED, Manifest, State

Common = tuple[object, ...]
HourState = tuple[tuple[int, State], ...]  # by shard


@dataclass(frozen=True, slots=True)
class SampleFingerprint:
    """What decides about the samples of an app: common state, and the state of each hour."""

    common: Common
    hour_states: Mapping[int, HourState]  # of settled hours with samples
    unsettled: frozenset[int]
    nonces: Mapping[int, int]  # by day: a manifest that was changed and changed back has another one

    @classmethod
    def of(cls, common: Common, manifests: Mapping[int, Manifest], tail: TailView) -> SampleFingerprint:
        """Take the fingerprint of one consistent view."""
        shard_states: dict[int, list[tuple[int, State]]] = {}
        unsettled = {hour for _, hour in (*tail.hour_shards(), *tail.missing)}
        for day in manifests.values():
            unsettled |= {hour for hour, seal in day.seals.items() if seal >= SEALED}
            for (shard, hour), entry in day.entries.items():
                if entry.state.generations or entry.state.replay:
                    shard_states.setdefault(hour, []).append((shard, entry.state))
        hour_states = {
            hour: tuple(sorted(states, key=_shard)) for hour, states in shard_states.items() if hour not in unsettled
        }
        nonces = {day: manifest.nonce for day, manifest in manifests.items()}
        return cls(common, hour_states, frozenset(unsettled), nonces)

    def agrees_on_hour(self, hour: int, other: SampleFingerprint) -> bool:
        """Whether an hour is settled in both fingerprints and has equal samples in them."""
        return (
            hour not in self.unsettled
            and hour not in other.unsettled
            and self.hour_states.get(hour, ()) == other.hour_states.get(hour, ())
        )

    def agrees_on_manifest(self, day: int, other: SampleFingerprint) -> bool:
        """Whether the manifest of a day was not written between the two fingerprints."""
        return self.nonces.get(day) == other.nonces.get(day)

    def within(self, first_hour: int, last_hour: int) -> SampleFingerprint:
        """Reduce it to the states of these hours, for a cached answer."""
        states = {hour: state for hour, state in self.hour_states.items() if first_hour <= hour <= last_hour}
        return SampleFingerprint(self.common, states, frozenset(), {})


def _shard(shard_state: tuple[int, State]) -> int:
    return shard_state[0]
