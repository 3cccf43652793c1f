"""Where an app's distribution is kept, and the steps by which it changes on a running system (PROTOCOL 22).

One check-and-put cell in `config` per app that has a distribution of its own; every other app uses the general one. An
epoch is opened (writers put there from their next look on), the one before it is set closing, and closed when nothing
is left in its shards; ``rollups`` moves the data and decides when. Enter by ``read``.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from spm.arrays import BOOL, U64
from spm.errors import CorruptBlock, Refused, StoreUnavailable
from spm.store import placement
from spm.store.backends.base import Backend, Reader
from spm.store.encoding import blocks
from spm.store.keys import BYTE, CLOSED, CLOSING, ENDING, OPEN, Distribution, Epoch

COLUMN = b"v"
GENERAL = b"distribution"
SHARDS_MAX = 256  # a shard is one byte of a key
EPOCHS_MAX = 64  # kept, closed ones too: their numbers must not come again
_TRIES = 8  # of a check-and-put that others keep winning


def name_of(app: int) -> bytes:
    """The row of an app's own distribution."""
    return b"%s/%d" % (GENERAL, app)


def encode(distribution: Distribution) -> bytes:
    """The cell's bytes."""
    return blocks.encode_record(blocks.DISTRIBUTION, distribution.epochs)


def decode(raw: bytes) -> Distribution:
    """The distribution of a cell. Raises ``CorruptBlock``; ``StrategyUnfit`` where this process cannot follow it."""
    found = Distribution(blocks.decode_record(blocks.DISTRIBUTION, raw, tuple[Epoch, ...]))
    if not found.epochs:
        raise CorruptBlock("a distribution without epochs", got=0, wanted="at least one")
    for epoch in found.epochs:
        epoch.all(0)  # closed ones too: what a late writer left by them is told by where they put things
    return found


def read(reader: Reader, app: int) -> Distribution:
    """The app's distribution: its own, else the general one, else one epoch by hash."""
    return _effective(reader, app)[1]


def read_many(reader: Reader, apps: Sequence[int], default: Distribution) -> dict[int, Distribution]:
    """Those of several apps by one get; ``default`` for apps that have none where there is no general one."""
    general, *own = reader.get("config", [GENERAL, *map(name_of, apps)], [COLUMN])
    used = [cell or general for cell in own]
    return {app: decode(cell[COLUMN]) if cell else default for app, cell in zip(apps, used, strict=True)}


def _effective(reader: Reader, app: int) -> tuple[bytes | None, Distribution]:
    """(the app's own cell, the distribution that is in force for it)."""
    own, general = reader.get("config", [name_of(app), GENERAL], [COLUMN])
    cell = own[COLUMN] if own else None
    used = own or general
    return cell, decode(used[COLUMN]) if used else Distribution()


def abandoned(distribution: Distribution, app: int, shard: int, metrics: U64) -> BOOL | None:
    """bool[S]: the metrics that are in this shard by a closed epoch alone; ``None``: none of them.

    A writer that looked at the distribution too early may leave such a copy behind; it has written the same again where
    it belongs before it said so to anybody. Readers and runs pass over it. Sealed hours stay where they are.
    """
    closed = [epoch for epoch in distribution.epochs if epoch.state == CLOSED]
    if not closed or not len(metrics):
        return None
    living = [epoch for epoch in distribution.epochs if epoch.state != CLOSED]
    here = [np.logical_or.reduce([e.of(app, metrics) == shard for e in some]) for some in (closed, living)]
    left: BOOL = here[0] & ~here[1]
    return left if left.any() else None


def open_epoch(store: Backend, app: int, *, strategy: str, shards: int, spread: int) -> Distribution:
    """Open another epoch, to which writers go from now on. Raises ``Refused`` for what cannot be, ``StrategyUnfit``."""
    _check(strategy, shards, spread)
    named = placement.signed(strategy, shards, spread)

    def opened(now: Distribution) -> Distribution:
        if len(now.epochs) >= EPOCHS_MAX:
            raise Refused("too many epochs", got=len(now.epochs), wanted=f"fewer than {EPOCHS_MAX}")
        newest = now.newest
        if (newest.strategy, newest.shards, newest.spread) == (named, shards, spread):
            raise Refused("the distribution is so already", got=f"{strategy}, {spread} of {shards} shards")
        return Distribution((*now.epochs, Epoch(newest.number + 1, named, shards, spread)))

    return _change(store, app, opened)


def _check(strategy: str, shards: int, spread: int) -> None:
    if strategy not in placement.known():
        raise Refused("unknown strategy of distribution", got=strategy, wanted=" or ".join(placement.known()))
    if not 1 <= spread <= shards <= SHARDS_MAX:
        raise Refused(
            "a distribution that cannot be",
            got=f"{spread} of {shards} shards",
            wanted=f"1 <= spread <= shards <= {SHARDS_MAX}",
        )
    if strategy == BYTE and not placement.byte_fits(shards):
        raise Refused(
            f"the last byte of a metric fills {shards} shards unevenly",
            wanted="16, 32, 64, 128 or 256, or very few",
            remedy="Spread by hash: it fills any number alike.",
        )


def next_state(epoch: Epoch) -> int:
    """What comes after closing: ending; and after ending, when something was found: closing again. Never the same."""
    return ENDING if epoch.state == CLOSING else epoch.state + 1


def set_state(store: Backend, app: int, number: int, state: int, *, was: int | None = None) -> Distribution:
    """Set an epoch's state; states only go forward, and the newest stays open. Repeating it changes nothing.

    With ``was`` only from that very state: what was looked up under it holds for no other.
    """

    def changed(now: Distribution) -> Distribution:
        epoch = now.epoch(number)
        if epoch is None:
            raise Refused(f"there is no epoch {number}")
        if number == now.newest.number and state != OPEN:
            raise Refused(f"epoch {number} is the one that writers use", remedy="Open another one first.")
        if state != epoch.state and (epoch.state == CLOSED or (state < epoch.state and state != CLOSED)):
            raise Refused(f"epoch {number} is {epoch.word} already")
        if state != epoch.state and was is not None and epoch.state != was:
            raise Refused(f"epoch {number} is being closed by others", remedy="Look again.")
        if state > CLOSING and epoch.state == OPEN:
            raise Refused(f"epoch {number} must be closing before it is closed")
        made = msgspec.structs.replace(epoch, state=state)
        return Distribution(tuple(made if e.number == number else e for e in now.epochs))

    return _change(store, app, changed)


def _change(store: Backend, app: int, change: Callable[[Distribution], Distribution]) -> Distribution:
    sent: Distribution | None = None
    for _ in range(_TRIES):
        cell, now = _effective(store, app)
        if cell is not None and now == sent:
            return now  # its answer was lost, but it is in
        sent = change(now)
        try:
            if sent == now or store.check_and_put("config", name_of(app), COLUMN, cell, encode(sent)):
                return sent
        except StoreUnavailable:
            continue
    raise StoreUnavailable(f"the distribution of app {app} kept changing: try again")
