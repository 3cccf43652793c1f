"""Placement functions as an operator writes them, for tests: ``SPM_STRATEGIES=tests.rollups.placing``."""

import numpy as np

from spm.store.placement import PlacementFunction, U64Array


def by_two_bytes(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    """A prefix of two bytes, folded onto the shards there are."""
    return (metrics >> np.uint64(48)) * np.uint64(shards) >> np.uint64(16)


def by_none(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    """No prefix: everything in one shard."""
    return np.zeros(len(metrics), np.uint64)


STRATEGIES = {
    "two bytes": PlacementFunction(by_two_bytes),
    "none": PlacementFunction(by_none, lambda app, shards, spread: [0]),
}
