"""What the tables of rules share: a rule, how it is switched off in our code, and a scenario that then goes wrong.

A scenario is a short history that raises unless every answer is right. With its rule on it passes; with the rule off
it must not. ``CALAMITIES`` are the ways in which a store that breaks a rule shows it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spm.arrays import BOOL
from spm.errors import CorruptBlock, IntegrityError, Refused
from spm.store.versions.merge import Piece
from tests.model.world import Crash, World

CALAMITIES = (AssertionError, IntegrityError, CorruptBlock, Refused, KeyError)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, what is done instead when it is off, the switch, and what must then go wrong."""

    name: str
    instead: str
    off: Callable[[pytest.MonkeyPatch], None]
    scenario: Callable[[], None]


def world_of(*samples: tuple[int, int, float]) -> World:
    """A world with one message."""
    world = World()
    world.send(*(samples or ((0, 1, 1.0),)))
    return world


def killed(act: Callable[[], object]) -> None:
    """An act that must be killed on its way, else the scenario shows nothing."""
    try:
        act()
    except Crash:
        return
    pytest.skip("the act never came to the point at which it was to be killed")


def refused(act: Callable[[], object], why: type[Exception]) -> None:
    """An act that must raise."""
    try:
        act()
    except why:
        return
    raise AssertionError(f"nobody raised {why.__name__}")


def right(world: World) -> None:
    """Every answer, from empty caches and from full ones, now and after one more full run."""
    for _ in range(2):
        world.clock.advance(1_500)  # older than a cached tail may be
        for storage in (world.fresh(), world.readers):
            assert world.answer(storage) == world.model.raw()
            assert world.hours(storage) == world.model.hours()
            assert world.days(storage) == world.model.days()
        world.roll()


def keep(piece: Piece, rows: BOOL) -> Piece:
    """A piece with only some of its rows."""
    owner = np.repeat(np.arange(len(piece.counts)), piece.counts)
    counts = np.bincount(owner[rows], minlength=len(piece.counts)).astype(np.int32)
    return Piece(
        piece.messages, piece.series, piece.metrics, counts, piece.message[rows], piece.ts[rows], piece.values[rows]
    )


@contextmanager
def patched(target: object, name: str, value: Any) -> Iterator[None]:
    """An attribute is something else for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, value)
        yield
