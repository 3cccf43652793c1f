"""The endpoint as its clients see it: streams, long polls, refusals, lost rights, slow readers, the process' end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from frontend.events.hub import EventHub
from spm import limits
from tests.frontend.events.listening import PATIENCE_S, Place
from tests.support.event_loop import on_loop

STREAM = "text/event-stream"
Story = Callable[[], Coroutine[Any, Any, None]]


def run(story: Story) -> None:
    on_loop(story(), 3 * PATIENCE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


def test_stream_shows_events_of_its_app_with_ids_to_go_on_from() -> None:
    async def story() -> None:
        place = Place()
        mine, others = await place.ask(accept=STREAM), await place.ask(token="two", accept=STREAM)
        await mine.until("retry: ")
        await others.until("retry: ")
        place.watch.alert(1)
        await mine.until("event: alert")
        place.watch.alert(2)
        await others.until("event: alert")
        assert (mine.events, others.events) == ([("alert", {"id": 1})], [("alert", {"id": 2})])
        ids = [line for line in mine.body.decode().splitlines() if line.startswith("id: ")]
        assert len(ids) == 2
        assert (
            mine.headers.items()
            >= {
                "content-type": STREAM,
                "cache-control": "no-store",
                "x-accel-buffering": "no",
                "x-content-type-options": "nosniff",
            }.items()
        )
        for each in (mine, others):
            each.leave()
            await each.end()
        assert len(place.hub) == 0

    run(story)


def test_stream_goes_on_after_its_last_id_without_loss() -> None:
    async def story() -> None:
        place = Place()
        first = await place.ask(accept=STREAM)
        await first.until("id: ")
        place.watch.alert(1)
        await first.until("event: alert")
        last = first.body.decode().rsplit("id: ", 1)[1].split("\n")[0]
        first.leave()
        await first.end()
        place.watch.alert(1)
        place.watch.alert(1)
        await until(lambda: not place.watch.news)
        again = await place.ask(accept=STREAM, last=last)
        await again.until('{"id":3}')
        assert again.events == [("alert", {"id": 2}), ("alert", {"id": 3})]
        again.leave()
        await again.end()

    run(story)


def test_id_that_nobody_knows_gets_a_reset() -> None:
    async def story() -> None:
        place = Place()
        place.watch.alert(9)
        for query in ("after=nonsense", "after=1-5-0.0.0.0.0"):
            await (await place.ask()).end()
            [event] = (await (await place.ask(query)).end()).json["events"]
            assert (event["event"], event["data"]) == ("reset", {"reason": "events were missed: load again"})

    run(story)


def test_poll_without_an_id_is_answered_at_once_and_with_one_when_something_is_new() -> None:
    async def story() -> None:
        place = Place()
        first = await (await place.ask()).end()
        assert first.json["events"] == []
        waiting = await place.ask(f"after={first.json['last']}&timeout=60")
        await asyncio.sleep(0.05)
        assert not waiting.task.done()
        place.watch.alert(1)
        second = (await waiting.end()).json
        assert [(each["event"], each["data"]) for each in second["events"]] == [("alert", {"id": 1})]
        assert second["events"][0]["id"] == second["last"]
        assert waiting.headers["content-type"] == "application/json"
        third = await (await place.ask(f"after={second['last']}&timeout=0.05")).end()
        assert third.json == {"events": [], "last": second["last"]}

    run(story)


@pytest.mark.parametrize(
    ("query", "options", "status"),
    [
        ("app=x", {}, 400),
        ("app=", {}, 400),
        ("timeout=61", {}, 400),
        ("timeout=-1", {}, 400),
        ("timeout=nan", {}, 400),
        ("&".join(f"a{n}=1" for n in range(30)), {}, 400),
        ("", {"token": ""}, 401),
        ("", {"token": "unknown"}, 401),
        ("", {"method": "POST"}, 405),
        ("", {"method": "HEAD"}, 405),
    ],
)
def test_request_that_is_wrong_is_refused_with_a_reason(query: str, options: dict[str, str], status: int) -> None:
    async def story() -> None:
        exchange = await (await Place().ask(query, **options)).end()
        assert (exchange.status, exchange.is_whole) == (status, True)
        assert options.get("method") == "HEAD" or exchange.json["error"]

    run(story)


def test_listeners_over_the_bound_are_refused_and_find_room_when_others_leave() -> None:
    async def story() -> None:
        place = Place(EventHub(organisation_max=1))
        first = await place.ask(accept=STREAM)
        await first.until("retry: ")
        refused = await (await place.ask(accept=STREAM)).end()
        assert refused.status == 429
        assert "at most 1" in refused.json["error"]
        assert refused.headers["retry-after"]
        first.leave()
        await first.end()
        again = await place.ask(accept=STREAM)
        await again.until("retry: ")
        again.leave()
        await again.end()

    run(story)


def test_listener_whose_rights_are_lost_gets_a_whole_end_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_CHECK_S", 0.0)

    async def story() -> None:
        place = Place()
        lost, stays = await place.ask(accept=STREAM), await place.ask(token="two", accept=STREAM)
        await lost.until("retry: ")
        await stays.until("retry: ")
        del place.valid["one"]
        await lost.end()
        assert (lost.events, lost.is_whole) == ([("end", {"reason": "the token is unknown"})], True)
        assert not stays.task.done()
        place.valid["two"] = 1  # the app is another one now
        await stays.end()
        assert len(place.hub) == 0

    run(story)


def test_listener_whose_rights_cannot_be_checked_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_CHECK_S", 0.0)
    monkeypatch.setattr(limits, "EVENTS_UNCHECKED_S", 0.2)

    async def story() -> None:
        place = Place()
        stream = await place.ask(accept=STREAM)
        await stream.until("retry: ")
        place.check_error = OSError("the database is away")
        await stream.end()
        assert (stream.events, stream.is_whole) == ([], True)

    run(story)


def test_reader_that_takes_nothing_delays_nobody_and_is_told_to_load_again() -> None:
    async def story() -> None:
        place = Place(EventHub(ring_size=3))
        slow, quick = await place.ask(accept=STREAM), await place.ask(accept=STREAM)
        await slow.until("retry: ")
        await quick.until("retry: ")
        slow.reads.clear()
        for number in range(1, 9):
            place.watch.alert(1)
            await quick.until(f'{{"id":{number}}}')
        slow.reads.set()
        await slow.until("event: reset")
        assert slow.events == [("alert", {"id": 1}), ("reset", {"reason": "events were missed: load again"})]
        assert [data["id"] for _, data in quick.events] == list(range(1, 9))
        for each in (slow, quick):
            each.leave()
            await each.end()

    run(story)


def test_stop_ends_streams_and_polls_whole_and_later_ones_at_once() -> None:
    async def story() -> None:
        place = Place()
        stream = await place.ask(accept=STREAM)
        first = await (await place.ask()).end()
        poll = await place.ask(f"after={first.json['last']}&timeout=60")
        await until(lambda: len(place.hub) == 2)
        place.endpoint.stop()
        await stream.end()
        await poll.end()
        late = await (await place.ask(accept=STREAM)).end()
        assert (stream.is_whole, stream.events, late.status, late.is_whole) == (True, [], 200, True)
        assert poll.json == {"events": [], "last": first.json["last"]}

    run(story)


def test_silent_stream_gets_a_comment_and_the_id_that_moved_on() -> None:
    async def story() -> None:
        place = Place(quiet_s=0.05)
        stream = await place.ask(accept=STREAM)
        await stream.until("\n\n:\n\n")
        place.watch.alert(2)  # of another app: this one's id moves on without an event
        await stream.until("-0-1.0.0.0.0.0\n\n")
        assert stream.events == []
        stream.leave()
        await stream.end()

    run(story)


def test_nothing_is_looked_at_when_nobody_listens_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_IDLE_S", 0.05)

    async def story() -> None:
        place = Place()
        assert place.watch.looks == []
        await (await place.ask()).end()
        await until(place.hub.is_unused)
        await asyncio.sleep(0.05)
        count = len(place.watch.looks)
        await asyncio.sleep(0.1)
        assert len(place.watch.looks) == count
        assert [1] in place.watch.looks
        again = await place.ask(accept=STREAM)
        await again.until("retry: ")
        place.watch.alert(1)
        await again.until("event: alert")
        again.leave()
        await again.end()

    run(story)


def test_listener_is_refused_while_changes_cannot_be_watched_and_comes_in_later() -> None:
    async def story() -> None:
        place = Place()
        place.watch.error = OSError("the database is away")
        refused = await (await place.ask(accept=STREAM)).end()
        assert (refused.status, refused.json["error"]) == (503, "changes cannot be watched now: try again later")
        place.watch.error = None
        stream = await place.ask(accept=STREAM)
        await stream.until("retry: ")
        place.watch.error = OSError("away again")
        await asyncio.sleep(0.05)
        place.watch.error = None
        place.watch.alert(1)
        await stream.until("event: alert")
        stream.leave()
        await stream.end()

    run(story)
