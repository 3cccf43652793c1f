"""Decides which series a query reads in which shard, by the placement table. Enter by ``ReadPlan.of``."""

from collections.abc import Mapping

import numpy as np

from spm.arrays import BOOL, U64
from spm.fast_dataclass import dataclass
from spm.query.samples.series_selection import SeriesByMetric
from spm.store import epochs
from spm.store.keys import PlacementTable
from spm.store.versions.generations import PageRequest


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The series that a query reads: all of them, and those of each shard in which their metric may lie."""

    everything: PageRequest
    by_shard: Mapping[int, PageRequest]
    disjoint: bool  # no metric lies in two shards

    @classmethod
    def of(cls, placement: PlacementTable, app: int, by_metric: SeriesByMetric) -> "ReadPlan":
        """Plan a read: each metric is read from the shards in which it may lie, one only if a single epoch is live."""
        everything = PageRequest({metric: by_metric.ids[a:b] for metric, (a, b) in by_metric.spans.items()})
        settled, shards = placement.has_one_live_epoch, placement.all_shards(app)
        if settled and len(shards) == 1:
            return cls(everything, dict.fromkeys(shards, everything), settled)
        metrics = np.fromiter(everything.series, np.uint64, len(everything.series))
        shard_of = placement.place(app, metrics)
        by_shard: dict[int, PageRequest] = {}
        for shard in shards:
            inside = shard_of == shard if settled else _may_lie_in(placement, app, shard, metrics)
            if inside.any():
                own = metrics if inside.all() else metrics[inside]
                by_shard[shard] = PageRequest({metric: everything.series[metric] for metric in own.tolist()})
        return cls(everything, by_shard, settled)

    def in_shard(self, shard: int) -> PageRequest | None:
        """The series to read in a shard; ``None`` if there are none."""
        return self.by_shard.get(shard)


def _may_lie_in(placement: PlacementTable, app: int, shard: int, metrics: U64) -> BOOL:
    """bool[S]: the metrics that may lie in a shard."""
    closed = epochs.in_closed_epoch_only(placement, app, shard, metrics)
    return np.ones(len(metrics), np.bool_) if closed is None else ~closed
