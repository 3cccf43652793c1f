"""Placement functions: how an epoch maps metrics to shards. Two are built in, others come from an operator's modules.

``hash`` maps to ``spread`` neighbouring shards, the first of which follows from the app's number; small apps lie in one
shard. ``byte`` maps to all shards by the last byte of the metric id, for one very large app. An operator's module has a
mapping ``STRATEGIES`` of names to ``PlacementFunction`` (formerly ``Strategy``); ``SPM_STRATEGIES`` names such modules,
with commas, in the environment of every process, also of Spark's workers. A placement function never changes:
an epoch records, beside the name, a fingerprint of where it places a sample of metrics (``with_fingerprint``). A
process whose module is missing or places metrics elsewhere raises ``PlacementUnfit`` instead of reading the wrong
shards. Enter by ``place`` and ``shards_of``.
"""

import hashlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from spm.errors import PlacementUnfit
from spm.wire import metric_id

U64Array = npt.NDArray[np.uint64]
Shards = npt.NDArray[np.uint8]
PlaceMetrics = Callable[[int, int, int, U64Array], U64Array]  # (app, shards, spread, metric ids) -> shard of each
ShardsOfApp = Callable[[int, int, int], Sequence[int]]  # (app, shards, spread) -> the shards it may put anything in

SETTING = "SPM_STRATEGIES"
HASH, BYTE = "hash", "byte"
UNEVEN_MAX = 1.1  # the fullest shard to the mean one: above it HBase gets a hot region
_SEPARATOR = "/"  # between a name and its fingerprint
_NAME_CHARS_MAX = 100
_APPS_CACHED = 4_096  # whose first shard is remembered: a query needs it more than once
_SAMPLE_APPS = (1, 2, 7, 1_000, 65_537, 0xFFFF_FFFF)
_SAMPLE_METRICS = np.arange(1, 1_025, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)


def all_shards(app: int, shards: int, spread: int) -> Sequence[int]:
    """All shards, for a placement function that may use any of them."""
    return range(shards)


@dataclass(frozen=True, slots=True)
class PlacementFunction:
    """Maps metrics to shards. It depends on its arguments alone, and returns the same in every process for ever.

    ``where``: the shards it uses for an app, when not all. ``metrics``: names that it treats specially; they are part
    of its fingerprint, so that a process with another list of them is noticed.
    """

    place: PlaceMetrics
    where: ShardsOfApp = all_shards
    metrics: tuple[str, ...] = ()


Strategy, everywhere = PlacementFunction, all_shards  # the former names, which operators' modules may still use


@lru_cache(maxsize=_APPS_CACHED)
def _base(app: int, shards: int) -> int:
    return int.from_bytes(hashlib.blake2b(app.to_bytes(4, "big"), digest_size=4).digest(), "big") % shards


def _place_by_hash(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    if spread == 1:
        return np.full(len(metrics), _base(app, shards), np.uint64)
    return (metrics % np.uint64(spread) + np.uint64(_base(app, shards))) % np.uint64(shards)


def _shards_by_hash(app: int, shards: int, spread: int) -> Sequence[int]:
    return [(_base(app, shards) + i) % shards for i in range(spread)]


def _place_by_byte(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    return (metrics & np.uint64(0xFF)) % np.uint64(shards)


BUILT_IN: Mapping[str, PlacementFunction] = MappingProxyType(
    {HASH: PlacementFunction(_place_by_hash, _shards_by_hash), BYTE: PlacementFunction(_place_by_byte)}
)


def byte_fits(shards: int) -> bool:
    """Whether the 256 values of a byte fill so many shards evenly."""
    return -(-256 // shards) * shards / 256 <= UNEVEN_MAX


# --- placing metrics --------------------------------------------------------------------------------------------------


def place(name: str, app: int, shards: int, spread: int, metrics: U64Array) -> Shards:
    """The shard of each metric id, u8, by the function that an epoch names; raise ``PlacementUnfit``."""
    if name in BUILT_IN:
        result = BUILT_IN[name].place(app, shards, spread, metrics)
        assert not len(result) or int(result.max()) < shards, f"BUG: {name} leaves the {shards} shards"
        return result.astype(np.uint8)
    return _place_by_operator(_placement_function(name, shards, spread, _setting()), app, shards, spread, metrics)


def shards_of(name: str, app: int, shards: int, spread: int) -> list[int]:
    """Every shard that the function may use for an app, ascending; raise ``PlacementUnfit``."""
    if name in BUILT_IN:
        return sorted(BUILT_IN[name].where(app, shards, spread))
    return _shards_by_operator(_placement_function(name, shards, spread, _setting()), app, shards, spread)


def with_fingerprint(name: str, shards: int, spread: int) -> str:
    """The name for a new epoch: an operator's function has its fingerprint in it. Raises ``PlacementUnfit``."""
    if name in BUILT_IN:
        return name
    return f"{name}{_SEPARATOR}{_fingerprint(_registered(name, _setting()), shards, spread)}"


def name_of(name: str) -> str:
    """The name without its fingerprint, for people."""
    return name.partition(_SEPARATOR)[0]


@lru_cache(maxsize=1024)
def _placement_function(name: str, shards: int, spread: int, setting: str) -> PlacementFunction:
    """The operator's function that an epoch names, if it still is what it was when that epoch was opened."""
    own, _, fingerprint = name.partition(_SEPARATOR)
    function = _registered(own, setting)
    present = _fingerprint(function, shards, spread)
    if present != fingerprint:
        raise PlacementUnfit(
            f"the placement function {own!r} places metrics elsewhere than when its epoch was opened",
            got=present,
            wanted=fingerprint,
            remedy="Restore its module, and give a changed function another name.",
        )
    return function


def _fingerprint(function: PlacementFunction, shards: int, spread: int) -> str:
    """A hash, in 16 hex digits, of where a function places a sample of metrics."""
    named = np.array([metric_id(text.encode()) for text in function.metrics], np.uint64)
    sample = np.concatenate([_SAMPLE_METRICS, named])
    digest = hashlib.blake2b(digest_size=8)
    for app in _SAMPLE_APPS:
        digest.update(_place_by_operator(function, app, shards, spread, sample).tobytes())
        digest.update(bytes(_shards_by_operator(function, app, shards, spread)))
    return digest.hexdigest()


def _place_by_operator(function: PlacementFunction, app: int, shards: int, spread: int, metrics: U64Array) -> Shards:
    """Place metrics by an operator's function, and check its answer."""
    result = np.asarray(_call(function.place, app, shards, spread, metrics))
    if result.shape != metrics.shape or result.dtype.kind not in "ui":
        raise PlacementUnfit(
            "a placement function returned something else than shards",
            got=f"{result.dtype} of shape {result.shape}",
            wanted="an integer for each metric",
        )
    outside = set(np.unique(result).tolist()) - set(_shards_by_operator(function, app, shards, spread))
    if outside:
        raise PlacementUnfit(f"a placement function uses shards that its `where` does not name: {sorted(outside)}")
    return result.astype(np.uint8)


def _shards_by_operator(function: PlacementFunction, app: int, shards: int, spread: int) -> list[int]:
    used = sorted({int(shard) for shard in _call(function.where, app, shards, spread)})
    if not used or used[0] < 0 or used[-1] >= shards:
        raise PlacementUnfit(
            "a placement function uses shards that do not exist", got=used, wanted=f"some below {shards}"
        )
    return used


def _call(function: Callable[..., Any], *arguments: object) -> Any:
    """Call an operator's function; whatever it raises becomes a ``PlacementUnfit``."""
    try:
        return function(*arguments)
    except Exception as trouble:
        raise PlacementUnfit(f"a placement function failed: {type(trouble).__name__}: {trouble}") from trouble


# --- registration -----------------------------------------------------------------------------------------------------


def function_names() -> list[str]:
    """The names of all placement functions of this process; raise ``PlacementUnfit`` where a module does not load."""
    return [*BUILT_IN, *_load_modules(_setting())]


def modules(setting: str | None = None) -> list[str]:
    """The operator's modules that the setting names, in order."""
    return [name for part in (_setting() if setting is None else setting).split(",") if (name := part.strip())]


def _setting() -> str:
    return os.environ.get(SETTING, "")


def _registered(name: str, setting: str) -> PlacementFunction:
    loaded = _load_modules(setting)
    if name not in loaded:
        raise PlacementUnfit(
            f"this process has no placement function {name!r}",
            got=", ".join([*BUILT_IN, *loaded]),
            remedy=f"Name its module in {SETTING} of every process.",
        )
    return loaded[name]


@lru_cache(maxsize=8)
def _load_modules(setting: str) -> Mapping[str, PlacementFunction]:
    """Load the placement functions of the modules that the setting names."""
    functions: dict[str, PlacementFunction] = {}
    for module in modules(setting):
        for name, function in _load_module(module).items():
            if name in BUILT_IN or name in functions:
                raise PlacementUnfit(f"two placement functions are named {name!r}", got=f"one more in {module}")
            functions[name] = function
    return MappingProxyType(functions)


def _load_module(module: str) -> dict[str, PlacementFunction]:
    try:
        functions = importlib.import_module(module).STRATEGIES
    except Exception as trouble:  # whatever the import of a foreign module may raise
        raise PlacementUnfit(
            f"{SETTING} names {module}, which does not load",
            got=f"{type(trouble).__name__}: {trouble}",
            wanted="an importable module with a mapping STRATEGIES",
            remedy="It must be there for every process.",
        ) from trouble
    is_valid = isinstance(functions, Mapping) and all(
        isinstance(name, str)
        and 0 < len(name) <= _NAME_CHARS_MAX
        and _SEPARATOR not in name
        and isinstance(each, PlacementFunction)
        for name, each in functions.items()
    )
    if not is_valid:
        raise PlacementUnfit(
            f"STRATEGIES of {module} is no mapping of names to placement functions",
            got=type(functions).__name__,
            wanted=f"names (at most {_NAME_CHARS_MAX} characters, without {_SEPARATOR!r}) to PlacementFunction",
        )
    return dict(functions)
