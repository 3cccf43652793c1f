"""Claims about balances, low-water marks and verdicts together (PROTOCOL 24, 26): no history breaks them.

A seed makes a history, which ``World`` plays over the real code, with lost and late answers of the store, kills between
any two steps, redeliveries, dead letters, replays and runs. ``bin/test --proof accept`` plays ``SPM_ACCEPT_HISTORIES``
of them. ``rules_off.py`` switches each rule off, and then a history must show a violation.
"""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.model.accept.cast import MIXES, Ways
from tests.model.accept.rules_off import RULES, Off
from tests.model.accept.world import Violation, World

CHECKED = {
    "vector",
    "count_marks",
    "never_give_up",
    "fresh_process",
    "mono_stamp",
    "adopt",
    "adopt_whole",
    "dead_out",
    "e_first",
    "tail_e",
    "keep_e",
    "dead_restamp",
    "settle_row",
    "stored_wins",
    "by_stamp",
    "distinct",
    "ledger_first",
    "batch_names_rows",
    "series_cas",
    "series_first",
}
SEARCHED = 240  # histories in which a broken rule must show
SHOWN = 40  # last steps of a history that went wrong


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """What these stores refuse is meant."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def play(mix: str, seed: int, ways: Ways | None = None) -> int:
    """One history; how many times something was compared in it."""
    world = World(seed, mix, ways=ways)
    try:
        world.play()
    except Violation as error:
        raise Violation("\n".join([f"{mix} {seed}: {error}", *world.stage.trace[-SHOWN:]])) from error
    return world.checked


@pytest.mark.parametrize("mix", MIXES)
def test_a_few_histories_break_no_rule(mix: str) -> None:
    assert sum(play(mix, seed) for seed in range(4)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_some_hundred_histories_break_no_rule(mix: str) -> None:
    assert sum(play(mix, seed) for seed in range(1_000, 1_040)) > 200


@pytest.mark.proof
def test_no_accept_history_breaks_a_rule() -> None:
    """``bin/test --proof accept_history``: ``SPM_ACCEPT_HISTORIES`` of them, by default twenty thousand."""
    wanted = int(os.environ.get("SPM_ACCEPT_HISTORIES", "20000"))
    first, compared = int(os.environ.get("SPM_ACCEPT_SEED", "100000")), 0
    for number in range(wanted):
        compared += play(list(MIXES)[number % len(MIXES)], first + number)
        if number % 200 == 199 or number == wanted - 1:
            print(f"{number + 1:,} of {wanted:,} histories, {compared:,} comparisons, 0 violations", flush=True)


def test_a_history_is_the_same_whenever_its_seed_is_played() -> None:
    one, other = World(5, "all"), World(5, "all")
    one.play()
    other.play()
    assert one.stage.trace == other.stage.trace


def test_every_rule_of_the_model_is_switched_off() -> None:
    assert {off.name for off in RULES} == CHECKED


@pytest.mark.parametrize("off", [off for off in RULES if callable(off.where)], ids=lambda off: off.name)
def test_a_rare_history_is_right_with_its_rule(off: Off) -> None:
    assert callable(off.where)
    off.where()


def shows(off: Off) -> None:
    """Play until it goes wrong."""
    if not isinstance(off.where, str):
        return off.where()
    for seed in range(SEARCHED):
        play(off.where, seed, off.ways)
    return None


@pytest.mark.parametrize("off", RULES, ids=lambda off: off.name)
def test_a_history_goes_wrong_without_its_rule(off: Off, monkeypatch: pytest.MonkeyPatch) -> None:
    off.patch(monkeypatch)
    with pytest.raises(Violation):
        shows(off)
