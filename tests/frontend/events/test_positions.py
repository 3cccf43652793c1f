"""Listeners at a position: they read when their stream goes on, share what they read, and cost nothing while idle."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from frontend.events import positions
from frontend.events.event_ids import Feed
from frontend.events.hub import News
from frontend.events.positions import Read
from spm import limits
from spm.events import log as event_log
from spm.events.errors import PositionGone
from tests.frontend.events.listening import PATIENCE_S, Place
from tests.support.event_loop import on_loop

STREAM = "text/event-stream"


class Log:
    """A stream of events of app 1, and the reads of it."""

    def __init__(self) -> None:
        self.head, self.oldest, self.reads = 0, 0, list[int]()

    def page_after(self, place: positions.Place) -> Read:
        """What comes after a place."""
        self.reads.append(place.position)
        if place.position < self.oldest:
            raise PositionGone(place.position, self.oldest)
        numbers = range(place.position + 1, self.head + 1)
        return Read(tuple((number, b'{"stream_position":%d}' % number) for number in numbers), self.head)

    def go_on(self, place: Place) -> None:
        """Let the next look find one event more."""
        self.head += 1
        place.watch.news.append(News(1, Feed.EVENTS, self.head, "event", b"{}"))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Stands in for the database."""
    log = Log()
    monkeypatch.setattr(positions, "_page_after", log.page_after)
    monkeypatch.setattr(event_log, "position_of", lambda _, text: int(text))
    return log


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    on_loop(story(), PATIENCE_S)


def test_an_idle_stream_gets_comments_and_reads_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_QUIET_S", 0.02)

    async def story() -> None:
        stream = await Place().ask("stream_position=0", accept=STREAM)
        await until(lambda: stream.body.count(b"id: 0\n\n") > 4)
        assert log.reads == [0]
        stream.leave()
        await stream.end()

    run(story)


def test_a_stream_that_goes_on_wakes_its_listeners_who_read_it_once(log: Log) -> None:
    async def story() -> None:
        place = Place()
        streams = [await place.ask("stream_position=0", accept=STREAM) for _ in range(20)]
        await until(lambda: all(b"id: 0" in stream.body for stream in streams))
        log.reads.clear()
        log.go_on(place)
        for stream in streams:
            await stream.until('id: 1\nevent: event\ndata: {"stream_position":1}')
            stream.leave()
            await stream.end()
        assert log.reads == [0]

    run(story)


def test_a_poll_waits_for_the_next_event(log: Log) -> None:
    async def story() -> None:
        place = Place()
        poll = await place.ask("stream_position=0&timeout=20")
        await until(lambda: bool(log.reads))
        log.go_on(place)
        await poll.end()
        assert poll.json == {"events": [{"stream_position": 1}], "stream_position": 1}

    run(story)


def test_a_poll_without_events_says_where_to_go_on(log: Log) -> None:
    async def story() -> None:
        poll = await (await Place().ask("stream_position=0&timeout=0.05")).end()
        assert poll.json == {"events": [], "stream_position": 0}

    run(story)


def test_a_position_that_is_gone_is_410_and_leaves_no_listener(log: Log) -> None:
    async def story() -> None:
        log.oldest = log.head = 7
        place = Place()
        answer = await (await place.ask("stream_position=3")).end()
        assert (answer.status, answer.json["oldest"], len(place.hub)) == (410, 7, 0)

    run(story)


def test_a_browser_that_comes_back_goes_on_after_its_last_id(log: Log) -> None:
    async def story() -> None:
        log.head = 3
        stream = await Place().ask("stream_position=0", accept=STREAM, last="2")
        await stream.until("id: 3\nevent: event")
        assert b'"stream_position":2' not in stream.body
        stream.leave()
        await stream.end()

    run(story)
