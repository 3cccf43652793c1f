"""The balance adds up at any moment of any history, and says truly where samples are."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.store.ledger.balance import read_balance, summarize
from spm.store.ledger.watermarks import Announcement
from tests.model.balance_world import DEAD, GONE, OPEN, QUEUED, STORED, World
from tests.support.faults import flip
from tests.support.rows import APP, START, envelope, stored

NOW = 1_699_300_000_500
HISTORIES = int(os.environ.get("SPM_HISTORIES", "12"))


@pytest.mark.seed("A11", compares="the account with the truth at every moment of random histories")
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=HISTORIES, deadline=None)
def test_the_balance_is_the_truth_at_every_moment_of_a_random_history(seed: int) -> None:
    world = World(random.Random(seed))
    accepted = 0
    for _ in range(60):
        act = world.act()
        balance, truth = world.account(), world.truth()
        messages, samples = balance.messages, balance.samples
        assert (messages.missing, samples.missing, balance.discrepancies) == (0, 0, ()), act
        assert (messages.accepted, messages.settled) == (truth.total(), truth[STORED] + truth[DEAD]), act
        assert (messages.stored, messages.dead + messages.rejected) == (truth[STORED], truth[DEAD]), act
        assert messages.waiting == truth[OPEN] + truth[QUEUED] + truth[GONE], act
        assert (samples.stored, samples.dead) == (world.samples(STORED), world.samples(DEAD)), act
        assert messages.accepted >= accepted, f"{act}: what was accepted once is accepted for ever"
        accepted = messages.accepted


@pytest.mark.seed("A11", compares="the account after a quiet end with every message that was ever stamped")
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=HISTORIES, deadline=None)
def test_after_a_quiet_end_only_messages_lost_with_their_process_are_not_settled(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(80):
        world.act()
    world.settle_all()
    balance, truth = world.account(), world.truth()
    assert (balance.messages.stored, balance.messages.dead + balance.messages.rejected) == (truth[STORED], truth[DEAD])
    assert balance.messages.waiting == truth[GONE]
    living = [p for p in balance.processes if p.number in {a.process for a in world.living}]
    assert all(p.messages.waiting == p.samples.waiting == 0 for p in living)


def test_a_process_whose_row_cannot_be_read_is_named_and_is_in_no_number() -> None:
    store = MemoryBackend()
    for process, sequence in ((1, 1), (2, 2)):
        message = envelope([(1, START + 5, 1.0)], process=process, sequence=sequence)
        stored(message, backend=store)
        watermarks.announce(store, APP, process, Announcement(message.stamp.ms, sequence, 1, 1, 0, 0, 0, NOW))
    flip(store, "marks", keys.watermark(APP, 2), b"a")
    balance = read_balance(store, APP, NOW)
    assert (balance.samples.accepted, balance.samples.stored, balance.unread) == (1, 1, (2,))
    assert (balance.discrepancies, balance.adds_up) == ((), False)
    assert (summarize(store, APP, NOW).samples.accepted, summarize(store, APP, NOW).unread) == (1, 1)
