"""How an epoch puts metrics into shards: two strategies of our own, and those of an operator's modules.

``hash``: to ``spread`` neighbouring shards from one that the app's number gives; small apps lie in one shard.
``byte``: over all shards by the metric's own last byte; for one very large app. An operator's module has a mapping
``STRATEGIES`` of names to ``Strategy``; ``SPM_STRATEGIES`` names such modules, with commas, in the environment of every
process, Spark's workers too. A strategy is for ever: the epoch that is opened by one remembers, beside its name, a mark
of where it puts a sample of metrics (``signed``), and a process whose module is not there or puts them elsewhere raises
``StrategyUnfit`` instead of looking in the wrong place. Enter by ``place`` and ``shards_of``.
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

from spm.errors import StrategyUnfit
from spm.wire import metric_id

U64Array = npt.NDArray[np.uint64]
Shards = npt.NDArray[np.uint8]
Placement = Callable[[int, int, int, U64Array], U64Array]  # (app, shards, spread, metric ids) -> shard of each
Where = Callable[[int, int, int], Sequence[int]]  # (app, shards, spread) -> the shards it may put anything in

SETTING = "SPM_STRATEGIES"
HASH, BYTE = "hash", "byte"
UNEVEN_MAX = 1.1  # the fullest shard to the mean one: above it a strategy does not spread, it makes a hot region
_SIGN = "/"  # between a name and its mark
_NAME_CHARS_MAX = 100
_PROBED_APPS = (1, 2, 7, 1_000, 65_537, 0xFFFF_FFFF)
_PROBED = np.arange(1, 1_025, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)


def everywhere(app: int, shards: int, spread: int) -> Sequence[int]:
    """All shards, for a strategy that may use any of them."""
    return range(shards)


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of placing: a function of its arguments alone, the same in every process and for ever.

    ``where``: the shards it uses for an app, when not all. ``metrics``: names that it treats in a way of their own;
    they belong to its mark, so that a process with another list of them is noticed.
    """

    place: Placement
    where: Where = everywhere
    metrics: tuple[str, ...] = ()


def _base(app: int, shards: int) -> int:
    return int.from_bytes(hashlib.blake2b(app.to_bytes(4, "big"), digest_size=4).digest(), "big") % shards


def _by_hash(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    return (metrics % np.uint64(spread) + np.uint64(_base(app, shards))) % np.uint64(shards)


def _hashed(app: int, shards: int, spread: int) -> Sequence[int]:
    return [(_base(app, shards) + i) % shards for i in range(spread)]


def _by_byte(app: int, shards: int, spread: int, metrics: U64Array) -> U64Array:
    return (metrics & np.uint64(0xFF)) % np.uint64(shards)


OWN: Mapping[str, Strategy] = MappingProxyType({HASH: Strategy(_by_hash, _hashed), BYTE: Strategy(_by_byte)})


def byte_fits(shards: int) -> bool:
    """Whether the 256 values of a byte fill so many shards alike."""
    return -(-256 // shards) * shards / 256 <= UNEVEN_MAX


# --- using one --------------------------------------------------------------------------------------------------------


def place(name: str, app: int, shards: int, spread: int, metrics: U64Array) -> Shards:
    """The shard of each metric id, u8, by the strategy that an epoch names. Raises ``StrategyUnfit``."""
    if name in OWN:
        made = OWN[name].place(app, shards, spread, metrics)
        assert not len(made) or int(made.max()) < shards, f"BUG: {name} leaves the {shards} shards"
        return made.astype(np.uint8)
    return _asked(_found(name, shards, spread, _setting()), app, shards, spread, metrics)


def shards_of(name: str, app: int, shards: int, spread: int) -> list[int]:
    """Every shard in which that strategy may put anything of an app, ascending. Raises ``StrategyUnfit``."""
    if name in OWN:
        return sorted(OWN[name].where(app, shards, spread))
    return _used(_found(name, shards, spread, _setting()), app, shards, spread)


def signed(name: str, shards: int, spread: int) -> str:
    """What a new epoch names: one of ours as it is, an operator's with its mark. Raises ``StrategyUnfit``."""
    return name if name in OWN else f"{name}{_SIGN}{_mark(_registered(name, _setting()), shards, spread)}"


def plain(name: str) -> str:
    """The name without its mark, for people."""
    return name.partition(_SIGN)[0]


@lru_cache(maxsize=1024)
def _found(name: str, shards: int, spread: int, setting: str) -> Strategy:
    """The operator's strategy that an epoch names, as it was when that epoch was opened."""
    own, _, mark = name.partition(_SIGN)
    strategy = _registered(own, setting)
    now = _mark(strategy, shards, spread)
    if now != mark:
        raise StrategyUnfit(
            f"the strategy {own!r} puts metrics elsewhere than when it was taken into use",
            got=now,
            wanted=mark,
            remedy="Bring its module back as it was, and give changed rules another name.",
        )
    return strategy


def _mark(strategy: Strategy, shards: int, spread: int) -> str:
    """Where it puts a sample of metrics, in 16 signs."""
    named = np.array([metric_id(text.encode()) for text in strategy.metrics], np.uint64)
    sample = np.concatenate([_PROBED, named])
    digest = hashlib.blake2b(digest_size=8)
    for app in _PROBED_APPS:
        digest.update(_asked(strategy, app, shards, spread, sample).tobytes())
        digest.update(bytes(_used(strategy, app, shards, spread)))
    return digest.hexdigest()


def _asked(strategy: Strategy, app: int, shards: int, spread: int, metrics: U64Array) -> Shards:
    """What an operator's strategy answers, if readers will look there."""
    made = np.asarray(_answer(strategy.place, app, shards, spread, metrics))
    if made.shape != metrics.shape or made.dtype.kind not in "ui":
        raise StrategyUnfit(
            "a strategy's answer is of no use",
            got=f"{made.dtype} of shape {made.shape}",
            wanted="a whole number for each metric",
        )
    outside = set(np.unique(made).tolist()) - set(_used(strategy, app, shards, spread))
    if outside:
        raise StrategyUnfit(f"a strategy puts metrics where nobody looks for them: in shards {sorted(outside)}")
    return made.astype(np.uint8)


def _used(strategy: Strategy, app: int, shards: int, spread: int) -> list[int]:
    used = sorted({int(shard) for shard in _answer(strategy.where, app, shards, spread)})
    if not used or used[0] < 0 or used[-1] >= shards:
        raise StrategyUnfit("a strategy uses shards that are not there", got=used, wanted=f"some below {shards}")
    return used


def _answer(function: Callable[..., Any], *arguments: object) -> Any:
    """What an operator's function returns. Whatever it raises is said as a strategy's fault."""
    try:
        return function(*arguments)
    except Exception as trouble:
        raise StrategyUnfit(f"a strategy failed: {type(trouble).__name__}: {trouble}") from trouble


# --- registration -----------------------------------------------------------------------------------------------------


def known() -> list[str]:
    """The names of all strategies in this process. Raises ``StrategyUnfit`` for a module that cannot be used."""
    return [*OWN, *_loaded(_setting())]


def modules(setting: str | None = None) -> list[str]:
    """The operator's modules, in their order."""
    return [name for part in (_setting() if setting is None else setting).split(",") if (name := part.strip())]


def _setting() -> str:
    return os.environ.get(SETTING, "")


def _registered(name: str, setting: str) -> Strategy:
    loaded = _loaded(setting)
    if name not in loaded:
        raise StrategyUnfit(
            f"this process knows no strategy {name!r} of distribution",
            got=", ".join([*OWN, *loaded]),
            remedy=f"Name its module in {SETTING} of every process.",
        )
    return loaded[name]


@lru_cache(maxsize=8)
def _loaded(setting: str) -> Mapping[str, Strategy]:
    """The strategies of the modules that the setting names."""
    found: dict[str, Strategy] = {}
    for module in modules(setting):
        for name, strategy in _of_module(module).items():
            if name in OWN or name in found:
                raise StrategyUnfit(f"two strategies are named {name!r}", got=f"one more in {module}")
            found[name] = strategy
    return MappingProxyType(found)


def _of_module(module: str) -> dict[str, Strategy]:
    try:
        offered = importlib.import_module(module).STRATEGIES
    except Exception as trouble:  # whatever the import of a foreign module may raise
        raise StrategyUnfit(
            f"{SETTING} names {module}, which cannot be used",
            got=f"{type(trouble).__name__}: {trouble}",
            wanted="an importable module with a mapping STRATEGIES",
            remedy="It must be there for every process.",
        ) from trouble
    fine = isinstance(offered, Mapping) and all(
        isinstance(name, str) and 0 < len(name) <= _NAME_CHARS_MAX and _SIGN not in name and isinstance(each, Strategy)
        for name, each in offered.items()
    )
    if not fine:
        raise StrategyUnfit(
            f"STRATEGIES of {module} is of no use",
            got=type(offered).__name__,
            wanted=f"a mapping of names (without {_SIGN!r}, at most {_NAME_CHARS_MAX} signs) to Strategy",
        )
    return dict(offered)
