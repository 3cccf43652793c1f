"""Reads and changes an app's placement table, the list of its placement epochs (PROTOCOL 22).

The table is a check-and-put cell in `config`. Apps without one of their own use the general one. When an epoch is
opened, writers use it from their next read of the table on. The epoch before it is set to closing, and to closed when
nothing remains in its shards; ``rollups`` moves the data and decides when. Enter by ``read``.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from spm.arrays import BOOL, U64
from spm.errors import CorruptBlock, Refused
from spm.store import placement
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import replace_cell
from spm.store.encoding import blocks
from spm.store.keys import BYTE, CLOSED, CLOSING, ENDING, OPEN, PlacementEpoch, PlacementTable

COLUMN = b"v"
GENERAL = b"distribution"
SHARDS_MAX = 256  # a shard is one byte of a key
EPOCHS_MAX = 64  # closed ones stay in the table, since their numbers must not come again


def row_key(app: int) -> bytes:
    """The row of an app's own placement table."""
    return b"%s/%d" % (GENERAL, app)


def encode(table: PlacementTable) -> bytes:
    """Encode the cell."""
    return blocks.encode_record(blocks.PLACEMENT, table.epochs)


def decode(raw: bytes) -> PlacementTable:
    """Decode a cell; raise ``CorruptBlock``, or ``PlacementUnfit`` where this process lacks a placement function."""
    table = PlacementTable(blocks.decode_record(blocks.PLACEMENT, raw, tuple[PlacementEpoch, ...]))
    if not table.epochs:
        raise CorruptBlock("a placement table without epochs", got=0, wanted="at least one")
    for epoch in table.epochs:
        epoch.all_shards(0)  # closed ones too: their function says what a late writer left by them
    return table


def read(reader: Reader, app: int) -> PlacementTable:
    """Read the app's placement table: its own, else the general one, else one epoch by hash."""
    own, general = reader.get("config", [row_key(app), GENERAL], [COLUMN])
    return _decoded(own or general)


def read_many(reader: Reader, apps: Sequence[int], default: PlacementTable) -> dict[int, PlacementTable]:
    """Read the tables of several apps by one get; ``default`` for apps without one where there is no general one."""
    return tables_of(apps, reader.get("config", row_keys(apps), [COLUMN]), default)


def row_keys(apps: Sequence[int]) -> list[bytes]:
    """The rows that hold the tables of several apps: the general one, then their own."""
    return [GENERAL, *map(row_key, apps)]


def tables_of(
    apps: Sequence[int], rows: Sequence[Mapping[bytes, bytes] | None], default: PlacementTable
) -> dict[int, PlacementTable]:
    """Decode the rows of ``row_keys``; ``default`` for apps without a table where there is no general one."""
    general, *own = rows
    used = [row or general for row in own]
    return {app: decode(row[COLUMN]) if row else default for app, row in zip(apps, used, strict=True)}


def _decoded(row: Mapping[bytes, bytes] | None) -> PlacementTable:
    return decode(row[COLUMN]) if row else PlacementTable()


def in_closed_epoch_only(table: PlacementTable, app: int, shard: int, metrics: U64) -> BOOL | None:
    """bool[S]: the metrics that only closed epochs put in this shard; ``None``: none of them.

    A writer that read the placement table too early may leave such a copy; it has put its samples again where they
    belong before it acknowledged them. Readers and runs ignore the copy. Sealed hours stay where they are.
    """
    closed = [epoch for epoch in table.epochs if epoch.state == CLOSED]
    if not closed or not len(metrics):
        return None
    live = [epoch for epoch in table.epochs if epoch.state != CLOSED]
    here = [np.logical_or.reduce([e.place(app, metrics) == shard for e in some]) for some in (closed, live)]
    result: BOOL = here[0] & ~here[1]
    return result if result.any() else None


def open_epoch(store: Backend, app: int, *, function: str, shards: int, spread: int) -> PlacementTable:
    """Open another epoch, which writers use from now on; raise ``Refused`` or ``PlacementUnfit``."""
    _check(function, shards, spread)
    name = placement.with_fingerprint(function, shards, spread)

    def opened(now: PlacementTable) -> PlacementTable:
        if len(now.epochs) >= EPOCHS_MAX:
            raise Refused("too many epochs", got=len(now.epochs), wanted=f"fewer than {EPOCHS_MAX}")
        newest = now.newest
        if (newest.function, newest.shards, newest.spread) == (name, shards, spread):
            raise Refused("the newest epoch is already so", got=f"{function}, {spread} of {shards} shards")
        return PlacementTable((*now.epochs, PlacementEpoch(newest.number + 1, name, shards, spread)))

    return _change(store, app, opened)


def _check(function: str, shards: int, spread: int) -> None:
    if function not in placement.function_names():
        raise Refused("unknown placement function", got=function, wanted=" or ".join(placement.function_names()))
    if not 1 <= spread <= shards <= SHARDS_MAX:
        raise Refused(
            "an impossible number of shards",
            got=f"{spread} of {shards} shards",
            wanted=f"1 <= spread <= shards <= {SHARDS_MAX}",
        )
    if function == BYTE and not placement.byte_fits(shards):
        raise Refused(
            f"the last byte of a metric fills {shards} shards unevenly",
            wanted="16, 32, 64, 128 or 256, or very few",
            remedy="Place by hash: it fills any number evenly.",
        )


def next_state(epoch: PlacementEpoch) -> int:
    """The state after this one: ending after closing, and closing again, under a new number, after ending."""
    return ENDING if epoch.state == CLOSING else epoch.state + 1


def set_state(store: Backend, app: int, number: int, state: int, *, expected: int | None = None) -> PlacementTable:
    """Set an epoch's state; states only go forward, and the newest epoch stays open. Repeating it changes nothing.

    With ``expected`` only from exactly that state, since a check made under it holds for no other.
    """

    def changed(now: PlacementTable) -> PlacementTable:
        epoch = now.epoch(number)
        if epoch is None:
            raise Refused(f"there is no epoch {number}")
        if number == now.newest.number and state != OPEN:
            raise Refused(f"epoch {number} is the one that writers use", remedy="Open another one first.")
        if state != epoch.state and (epoch.state == CLOSED or (state < epoch.state and state != CLOSED)):
            raise Refused(f"epoch {number} is {epoch.state_name} already")
        if state != epoch.state and expected is not None and epoch.state != expected:
            raise Refused(f"epoch {number} is being closed by others", remedy="Look again.")
        if state > CLOSING and epoch.state == OPEN:
            raise Refused(f"epoch {number} is still open", wanted="closing", remedy="Set it to closing first.")
        replaced = msgspec.structs.replace(epoch, state=state)
        return PlacementTable(tuple(replaced if e.number == number else e for e in now.epochs))

    return _change(store, app, changed)


def _change(store: Backend, app: int, change: Callable[[PlacementTable], PlacementTable]) -> PlacementTable:
    def changed(row: Mapping[bytes, bytes]) -> tuple[bytes | None, PlacementTable]:
        present = _decoded(row or store.get("config", [GENERAL], [COLUMN])[0])
        table = change(present)
        return None if table == present else encode(table), table

    error = f"the placement table of app {app} kept changing: try again"
    return replace_cell(store, "config", row_key(app), changed, error=error, retry_lost_answers=True)
