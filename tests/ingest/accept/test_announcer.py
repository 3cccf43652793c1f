"""Claims about ingest/accept/announcer.py: the store hears, for each app, exactly how many messages lie up to which
stamp.
"""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept import stamper
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.stamper import Stamper
from ingest.transport.limits import PAST_AHEAD_MS
from spm import limits
from spm.clock import FakeClock, SystemClock
from spm.errors import StoreUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import rounds, watermarks
from spm.store.ledger.rounds import Round
from spm.store.ledger.watermarks import Announcement
from spm.wire import Envelope, Parsed, SeriesTable, Stamp
from tests.support.acceptors import silent_announcer
from tests.support.faults import Faulty
from tests.support.rows import form

APP, OTHER = 7, 8
LIVE_MS, LONG_AGO_MS = 4_000_000_000_000, -(limits.LIVE_HOURS + 1) * limits.HOUR_MS  # by any clock of these tests


def parsed(samples: int = 1, rejected: int = 0, from_ms: int = LIVE_MS) -> Parsed:
    ts = np.arange(from_ms, from_ms + samples, dtype=np.int64)
    table = SeriesTable.from_canonical([form(1)])
    return Parsed(table, np.zeros(samples, np.int32), ts, np.ones(samples), rejected=rejected)


def push(announcer: StampAnnouncer, app: int = APP, samples: int = 1, rejected: int = 0) -> Envelope:
    return announcer.stamp_message(app=app, source="h", parsed=parsed(samples, rejected), message_id=b"i" * 16)


def push_past(announcer: StampAnnouncer, app: int = APP, samples: int = 1) -> Envelope:
    """Stamp a message with samples of long ago."""
    body = parsed(samples, from_ms=LONG_AGO_MS)
    return announcer.stamp_message(app=app, source="h", parsed=body, message_id=b"i" * 16)


def words(store: MemoryBackend, app: int = APP) -> dict[int, Announcement]:
    """Return the newest announcement of each process for an app."""
    announcements = {process: row.newest for process, row in watermarks.read(store, app).items()}
    return {process: word for process, word in announcements.items() if word is not None}


def test_the_store_hears_how_many_messages_lie_up_to_the_last_stamp() -> None:
    store, clock = MemoryBackend(), FakeClock(1000)
    announcer = silent_announcer(clock, store)
    push(announcer, samples=3, rejected=2)
    clock.advance(5)
    last = push(announcer, samples=4)
    push(announcer, OTHER)
    clock.advance(7)
    announcer.announce()
    assert words(store) == {1: Announcement(1005, last.stamp.sequence, 2, 7, 2, 2, 7, at_ms=1012)}
    assert words(store, OTHER)[1].messages == 1


def test_what_is_settled_is_no_longer_open() -> None:
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    first, second = push(announcer, samples=3), push(announcer, samples=4)
    announcer.confirm(first)
    announcer.announce()
    assert (words(store)[1].open_messages, words(store)[1].open_samples) == (1, 4)
    announcer.confirm(second)
    announcer.announce()
    assert (words(store)[1].messages, words(store)[1].open_messages) == (2, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["push 7", "push 8", "past 7", "past 8", "settle", "announce", "jump", "retire", "fail"]),
        max_size=40,
    ),
)
def test_every_word_is_true_whatever_happened_before_it(story: list[str]) -> None:
    clock, inner = FakeClock(), MemoryBackend()
    store = Faulty(inner)
    announcer = silent_announcer(clock, store)
    given_out: list[Envelope] = []
    open_: list[Envelope] = []
    for step in story:
        if step.startswith(("push", "past")):
            stamp = push if step.startswith("push") else push_past
            given_out.append(stamp(announcer, int(step[-1]), samples=1 + len(given_out) % 3))
            open_.append(given_out[-1])
        elif step == "settle" and open_:
            announcer.confirm(open_.pop(0))
        elif step == "jump":
            clock.jump(-1000 if len(given_out) % 2 else 1000)
        elif step == "retire":
            announcer.retire()
        elif step == "fail":
            store.fails_at = len(store.calls)
            announcer.announce()
            store.fails_at = None
        else:
            announcer.announce()
        _recount(inner, given_out)
    announcer.close()
    last = _recount(inner, given_out)
    assert last == len(given_out), "the last words leave nothing out"


def _recount(store: MemoryBackend, given_out: list[Envelope]) -> int:
    """Check every announcement against the stamps; return the messages that the newest ones count."""
    spoken_of = 0
    for app in (7, 8):
        for process, row in watermarks.read(store, app).items():
            mine = [e for e in given_out if (e.app, e.stamp.process) == (app, process)]
            for word in row.announcements:
                upto = [e for e in mine if (e.stamp.ms, e.stamp.sequence) <= word.place]
                assert (word.messages, word.samples) == (len(upto), sum(map(len, upto)))
            spoken_of += row.announcements[-1].messages
    return spoken_of


def test_counts_and_stamps_agree_under_many_threads() -> None:
    acceptor = Stamper(1, SystemClock())
    stamps: list[Stamp] = []
    seen: list[tuple[Stamp, int]] = []
    running = threading.Event()
    running.set()

    def work() -> None:
        for _ in range(300):
            stamps.append(acceptor.stamp_message(app=APP, source="h", parsed=parsed(), message_id=b"i" * 16).stamp)

    def listen() -> None:
        while running.is_set():
            seen.extend((count.last, count.messages) for _, count in acceptor.take_changes(9))

    threads = [threading.Thread(target=work) for _ in range(4)]
    ear = threading.Thread(target=listen)
    for thread in (ear, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    running.clear()
    ear.join()
    assert seen
    assert all(sum(s <= last for s in stamps) == messages for last, messages in seen)


def test_a_store_that_does_not_answer_keeps_no_push_and_hears_the_newest_later() -> None:
    inner = MemoryBackend()
    store = Faulty(inner)
    announcer = silent_announcer(FakeClock(), store)
    push(announcer)
    store.fails_at = 0
    announcer.announce()
    push(announcer)
    assert words(inner) == {}
    store.fails_at = None
    announcer.announce()
    assert words(inner)[1].messages == 2


def test_a_round_tells_of_so_many_apps_and_forgets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANNOUNCE_APPS_AT_ONCE", 3)
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    for app in range(1, 9):
        push(announcer, app)
    heard = []
    for _ in range(3):
        announcer.announce()
        push(announcer, 1)  # the busiest app does not keep others from being announced
        heard.append(sum(bool(words(store, app)) for app in range(1, 9)))
    assert heard == [3, 6, 8]


def test_a_retired_process_is_announced_as_ended_and_the_next_message_has_another_one() -> None:
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    lost = push(announcer)
    announcer.retire()
    assert push(announcer).stamp.process == lost.stamp.process + 1
    announcer.announce()
    announcements = words(store)
    assert (announcements[1].ended, announcements[1].open_messages, announcements[2].ended) == (True, 1, False)


def test_one_app_more_than_a_process_counts_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamper, "ACCEPT_APPS_MAX", 2)
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    envelopes = [push(announcer, app) for app in (1, 2, 1, 3, 1)]
    assert [e.stamp.process for e in envelopes] == [1, 1, 1, 2, 2]
    announcer.announce()
    assert not words(store, 2)[1].ended, "something of it is still open"
    for envelope in envelopes:
        announcer.confirm(envelope)
    announcer.announce()
    announcer.announce()
    assert words(store, 2)[1].ended
    assert (words(store, 1)[1].ended, words(store, 1)[1].messages, words(store, 1)[1].open_messages) == (True, 2, 0)
    assert list(announcer._stampers) == [2], "an ended process takes no memory"


def test_a_word_that_is_not_settled_is_repeated_while_its_process_lives() -> None:
    store, clock = MemoryBackend(), FakeClock(1000)
    announcer = silent_announcer(clock, store)
    push(announcer)
    for _ in range(limits.ANNOUNCE_ALIVE_ROUNDS):
        announcer.announce()
        clock.advance(2000)
    assert words(store)[1].at_ms == 1000 + 2000 * (limits.ANNOUNCE_ALIVE_ROUNDS - 1)


def test_a_process_puts_a_round_before_its_first_message_and_after_each_announcement() -> None:
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(1000), store)
    announcer.announce()
    assert rounds.read(store) == {}, "who accepts nothing announces nothing"
    push(announcer)
    assert rounds.read(store)[1] == Round(1, 1, 1000)
    announcer.announce()
    assert rounds.read(store)[1] == Round(1, 2, 1000)
    announcer.close()
    assert rounds.read(store)[1].ended


def test_a_round_names_the_apps_that_had_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANNOUNCE_APPS_AT_ONCE", 1)
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    push(announcer, 1)
    push(announcer, 2)
    announcer.announce()
    assert rounds.read(store)[1].unannounced == (2,)
    announcer.announce()
    assert rounds.read(store)[1].unannounced == ()


def test_a_round_whose_announcements_failed_is_not_put() -> None:
    inner = MemoryBackend()
    store = Faulty(inner)
    announcer = silent_announcer(FakeClock(), store)
    push(announcer)
    store.fails_at = 0
    announcer.announce()
    store.fails_at = None
    assert rounds.read(inner)[1].number == 0
    announcer.announce()
    assert rounds.read(inner)[1].number == 2


def test_messages_of_long_ago_have_a_number_of_their_own_for_which_nobody_waits() -> None:
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(1000), store)
    stamps = [push_past(announcer).stamp, push(announcer).stamp, push_past(announcer).stamp]
    assert [stamp.process for stamp in stamps] == [2, 1, 2]
    announcer.announce()
    assert {process: word.messages for process, word in words(store).items()} == {1: 1, 2: 2}
    assert list(rounds.read(store)) == [1], "judges of rules wait for each process that has a round"
    announcer.close()
    assert [word.ended for word in words(store).values()] == [True, True]


@given(st.lists(st.sampled_from(["live", "past", "back", "on", "announce", "retire"]), max_size=60))
def test_of_live_messages_and_those_of_long_ago_the_later_one_wins_whatever_the_clock_does(story: list[str]) -> None:
    clock = FakeClock(1_000_000)
    announcer = silent_announcer(clock)
    stamps: list[tuple[int, int, int]] = []
    for step in story:
        if step in ("live", "past"):
            stamp = (push if step == "live" else push_past)(announcer).stamp
            stamps.append((stamp.ms, stamp.process, stamp.sequence))
        elif step == "announce":
            announcer.announce()
        else:
            clock.jump({"back": -500, "on": 300}.get(step, 0))
    assert stamps == sorted(set(stamps))


def test_messages_of_both_kinds_by_turns_bring_no_stamp_far_ahead_of_the_clock() -> None:
    """Each turn takes a millisecond, and a process may stamp thousands of messages in one."""
    clock = FakeClock(1_000_000)
    announcer = silent_announcer(clock)
    stamps = [(push_past if number % 2 else push)(announcer).stamp for number in range(3 * PAST_AHEAD_MS)]
    assert max(stamp.ms for stamp in stamps) <= clock.now_ms() + PAST_AHEAD_MS + 1
    assert len(set(stamps)) == len(stamps)
    clock.advance(2 * PAST_AHEAD_MS)
    assert [push(announcer).stamp.process, push_past(announcer).stamp.process] == [1, 2]


def test_the_number_of_messages_of_long_ago_ends_once_there_are_none_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watermark says nothing of newer stamps, and would keep rollup rows from rules."""
    monkeypatch.setattr("ingest.accept.announcer.PAST_IDLE_ROUNDS", 2)
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    first = push_past(announcer)
    announcer.confirm(first)
    ended = []
    for _ in range(4):
        push(announcer)
        announcer.announce()
        ended.append(words(store)[first.stamp.process].ended)
    assert ended == [False, False, True, True]
    assert push_past(announcer).stamp.process == 3


def test_a_number_of_messages_of_long_ago_ends_some_day_although_they_never_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingest.accept.announcer.PAST_NUMBER_ROUNDS", 3)
    store = MemoryBackend()
    announcer = silent_announcer(FakeClock(), store)
    numbers = []
    for _ in range(9):
        message = push_past(announcer)
        numbers.append(message.stamp.process)
        announcer.confirm(message)
        announcer.announce()
    assert numbers == [2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert [word.ended for word in words(store).values()] == [True, True, False]


@pytest.fixture
def talking() -> Iterator[tuple[MemoryBackend, StampAnnouncer]]:
    store = MemoryBackend()
    announcer = StampAnnouncer(store, SystemClock(), every_s=0.01)
    yield store, announcer
    announcer.close()


def test_the_thread_announces_by_itself_and_has_the_last_word(talking: tuple[MemoryBackend, StampAnnouncer]) -> None:
    store, announcer = talking
    push(announcer)
    end = time.monotonic() + 5
    while not words(store) and time.monotonic() < end:
        time.sleep(0.005)
    assert words(store)[1].messages == 1
    push(announcer)
    announcer.close()
    assert (words(store)[1].messages, words(store)[1].ended) == (2, True)
    with pytest.raises(StoreUnavailable, match="about to end"):
        push(announcer)
