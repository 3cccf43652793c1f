"""Claims about ``DirectTransport.submit_here``: few messages are committed by the thread that brings them, once."""

import threading
from collections.abc import Callable, Sequence

import pytest

from ingest.transport import direct
from ingest.transport.base import Submission, Trouble, weight_of
from ingest.transport.direct import DirectTransport
from ingest.writer import Writer
from spm import limits
from spm.errors import AppUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.wire import Envelope
from tests.ingest.transport.test_direct import Flaky, Watched, _quick, message, opened, soon
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader

__all__ = ["_quick", "opened"]
Opener = Callable[[Writer], DirectTransport]


class Here:
    """Submits messages to a transport, and notes what it tells."""

    def __init__(self, transport: DirectTransport) -> None:
        self.transport = transport
        self.troubles: list[Trouble] = []
        self.outcomes: list[bool] = []

    def submit(self, *messages: Envelope, how: str = "here") -> None:
        """Submit messages together."""
        submissions = [Submission(one, weight_of(one), self.outcomes.append) for one in messages]
        for each in submissions:
            self.transport.reserve(each.envelope.app, "host", each.weight)
        if how == "apart":
            self.transport.submit_apart(submissions, self.troubles.extend)
        elif how == "large, submitted":
            self.troubles += self.transport.submit(submissions)
        else:
            self.transport.submit_here(submissions, self.troubles.extend)

    def beside(self, *messages: Envelope) -> threading.Thread:
        """Submit messages in a thread of their own."""
        thread = threading.Thread(target=self.submit, args=messages)
        thread.start()
        return thread


@pytest.fixture
def where() -> list[str]:
    """The names of the threads that made batches."""
    return []


def noting(where: list[str]) -> Callable[[Sequence[Envelope]], None]:
    return lambda _batch: where.append(threading.current_thread().name)


def test_few_messages_are_durable_when_submit_here_returns(opened: Opener, where: list[str]) -> None:
    writer = Watched(noting(where))
    here = Here(opened(writer))
    for first in (1, 3):
        here.submit(message(first), message(first + 1))
        assert here.outcomes == [True] * (first + 1)
    assert set(where) == {threading.current_thread().name}
    assert writer.batches == [[1, 2], [3, 4]]
    assert look(reader(writer.store)) == plain([message(number) for number in range(1, 5)])
    assert (here.transport._weight, here.transport._thread) == (0, None)


def test_many_messages_are_left_to_the_committer(
    opened: Opener, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is parsed beside their commit."""
    monkeypatch.setattr(direct, "COMMIT_HERE_BYTES_MAX", 2 * weight_of(message(1)))
    here = Here(opened(Watched(noting(where))))
    here.submit(*[message(number) for number in range(3)])
    assert soon(lambda: here.outcomes == [True] * 3)
    assert set(where) == {"committer"}


@pytest.mark.parametrize("steps", [0, 1], ids=["lost", "lost after a step"])
def test_what_the_store_did_not_take_is_put_again_by_the_committer_as_the_same_bytes(
    opened: Opener, steps: int
) -> None:
    store = Flaky(failures=3, steps=steps)
    here = Here(opened(Watched(store=store)))
    here.submit(message(1))
    assert here.troubles[0]() is not None or here.outcomes
    assert soon(lambda: here.outcomes == [True])
    assert here.troubles[0]() is None
    first, *again = store.put_steps
    assert again
    assert all(put in (first, first[len(first) - len(put) :]) for put in again)
    assert look(reader(store)) == plain([message(1)])


def test_messages_that_come_during_a_commit_here_are_the_committers_next_batch(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_STALL_S", 0.05)
    store = Flaky()
    store.hangs = threading.Event()
    writer = Watched(store=store)
    here = Here(opened(writer))
    thread = here.beside(message(1))
    try:
        assert soon(lambda: len(store.put_steps) == 1)
        later = Here(here.transport)
        later.submit(message(2))
        later.submit(message(3))
        assert writer.batches == [[1]]
        assert soon(lambda: "the store has not answered" in (here.transport.standstill() or ""))
        assert "has not answered" in (here.troubles[0]() or "")
    finally:
        store.hangs.set()
        thread.join()
    assert soon(lambda: (here.outcomes, later.outcomes) == ([True], [True, True]))
    assert writer.batches == [[1], [2, 3]]
    assert here.transport.standstill() is None


def test_messages_of_a_damaged_app_are_set_aside_and_tried_again(opened: Opener) -> None:
    refusals = [AppUnavailable("a row by which data is written is damaged") for _ in range(3)]

    def fail(batch: Sequence[Envelope]) -> None:
        if refusals:
            raise refusals.pop()

    writer = Watched(fail)
    here = Here(opened(writer))
    here.submit(message(1))
    assert soon(lambda: here.outcomes == [True])
    assert look(reader(writer.store)) == plain([message(1)])


def test_messages_that_cannot_be_written_become_dead_letters_one_by_one(opened: Opener) -> None:
    def fail(batch: Sequence[Envelope]) -> None:
        if any(one.stamp.sequence == 2 for one in batch):
            raise MemoryError

    writer = Watched(fail)
    here = Here(opened(writer))
    here.submit(message(1), message(2), message(3))
    assert soon(lambda: here.outcomes == [True] * 3)
    assert look(reader(writer.store)) == plain([message(1), message(3)])


def test_messages_with_samples_of_long_ago_go_to_their_own_thread(opened: Opener, where: list[str]) -> None:
    writer = Watched(noting(where))
    here = Here(opened(writer))
    past = envelope([(1, START - limits.LIVE_HOURS * limits.HOUR_MS - 1, 1.0)], sequence=1, ms=START)
    here.submit(past, message(2))
    assert soon(lambda: here.outcomes == [True, True])
    assert sorted(where) == sorted(["committer of the past", threading.current_thread().name])
    assert look(reader(writer.store)) == plain([past, message(2)])


@pytest.mark.parametrize("how", ["large, submitted", "large, submitted here", "apart"])
def test_few_messages_are_durable_before_what_takes_long_and_came_earlier(
    opened: Opener, where: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    may_go_on = threading.Event()

    def hold(batch: Sequence[Envelope]) -> None:
        where.append(threading.current_thread().name)
        assert any(one.stamp.sequence == 1 for one in batch) == (where[-1] == "committer of large messages")
        assert where[-1] != "committer of large messages" or may_go_on.wait(20)

    if how != "apart":
        monkeypatch.setattr(direct, "COMMIT_HERE_BYTES_MAX", weight_of(message(1)))
    writer = Watched(hold)
    slow, here = Here(transport := opened(writer)), Here(transport)
    large = envelope([(1, START, 1.0), (1, START + 1, 2.0)], sequence=1, ms=START)
    try:
        slow.submit(large, how=how)
        assert soon(lambda: len(where) == 1)
        here.submit(message(2))
        assert (here.outcomes, slow.outcomes) == ([True], [])
        assert where == ["committer of large messages", threading.current_thread().name]
    finally:
        may_go_on.set()
    assert soon(lambda: slow.outcomes == [True])
    assert look(reader(writer.store)) == plain([large, message(2)])


def test_what_was_set_aside_of_the_past_is_tried_again_though_nothing_else_is_committed(opened: Opener) -> None:
    refusals = [AppUnavailable("a row by which data is written is damaged")]

    def fail(batch: Sequence[Envelope]) -> None:
        if refusals:
            raise refusals.pop()

    here = Here(opened(Watched(fail)))
    here.submit(envelope([(1, START - limits.LIVE_HOURS * limits.HOUR_MS - 1, 1.0)], sequence=1, ms=START))
    assert soon(lambda: here.outcomes == [True])


def test_the_end_waits_for_a_commit_here(opened: Opener) -> None:
    store = Flaky()
    store.hangs = threading.Event()
    here = Here(opened(Watched(store=store)))
    thread = here.beside(message(1))
    assert soon(lambda: len(store.put_steps) == 1)
    ending = threading.Thread(target=here.transport.close)
    ending.start()
    store.hangs.set()
    ending.join()
    thread.join()
    assert here.outcomes == [True]
    assert here.transport._weight == 0


def test_threads_that_submit_at_once_lose_nothing(opened: Opener) -> None:
    store = MemoryBackend()
    heres = [Here(transport := opened(Watched(store=store)))] + [Here(transport) for _ in range(5)]
    threads = []
    for number, here in enumerate(heres):

        def many(here: Here = here, number: int = number) -> None:
            for i in range(20):
                here.submit(message(20 * number + i))

        threads.append(threading.Thread(target=many))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert soon(lambda: sum(len(here.outcomes) for here in heres) == 120)
    assert look(reader(store, app=APP)) == plain([message(number) for number in range(120)])
