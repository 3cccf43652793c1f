"""Every listener gets each event of its app after its id, once and in order, or a reset, whatever happens meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.events.event_ids import NOTHING_SEEN, TABLES, EventId, Feed
from frontend.events.hub import EventHub, Listener, ListenersFull, News

APPS = (1, 2)
RING = 4


def nothing() -> None:
    """Wake nobody."""


@dataclass
class Site:
    """Several web processes that look at the same tables, each in its own time; and what there is to be seen."""

    hubs: list[EventHub]
    rows: list[News] = field(default_factory=list)  # all that ever happened, in this order
    looked: list[int] = field(default_factory=list)  # by process: how many of these it has published

    @classmethod
    def of(cls, processes: int) -> "Site":
        hubs = [EventHub(ring_size=RING) for _ in range(processes)]
        return cls(hubs, [], [0] * processes)

    def happen(self, app: int, feed: Feed) -> None:
        number = 1 + max((row.number for row in self.rows if row.feed is feed), default=0)
        self.rows.append(News(app, feed, number, feed.name, b"{}"))

    def look(self, process: int) -> None:
        """Publish what is new in an order of this process' own: table by table."""
        fresh = sorted(self.rows[self.looked[process] :], key=lambda row: (row.feed, row.number))
        self.hubs[process].publish(fresh)
        self.looked[process] = len(self.rows)
        self.hubs[process].has_seen(self.seen(process))

    def seen(self, process: int) -> tuple[int, ...]:
        highest = dict(enumerate(NOTHING_SEEN))
        for row in self.rows[: self.looked[process]]:
            if row.feed in TABLES:
                highest[row.feed] = max(highest[row.feed], row.number)
        return tuple(highest.values())

    def restart(self, process: int) -> None:
        self.hubs[process] = EventHub(ring_size=RING)
        self.looked[process] = len(self.rows)
        self.hubs[process].has_seen(self.seen(process))


@dataclass
class Reader:
    """A client: what it has seen of its app, by the site's own numbers, and its last id."""

    app: int
    process: int = 0
    listener: Listener | None = None
    last: EventId | None = None
    since: int = 0  # rows of the site before this are not its business: it loaded when they were there
    rows: list[News] = field(default_factory=list)

    def take(self, site: Site) -> None:
        assert self.listener is not None
        batch = self.listener.take()
        if batch is None:
            return
        self.last = EventId.parse(batch.last)
        if batch.is_reset:
            assert not batch.events
            self.since, self.rows = site.looked[self.process], []  # it loads again
            return
        self.rows += [event.news for event in batch.events]


READERS = 3
HAPPEN = st.tuples(st.just("happen"), st.sampled_from(APPS), st.sampled_from((Feed.ALERTS, Feed.RUNS, Feed.DATA)))
STEPS = st.one_of(
    HAPPEN,
    HAPPEN,
    st.tuples(st.just("look"), st.integers(0, 1), st.none()),
    st.tuples(st.just("take"), st.integers(0, READERS - 1), st.none()),
    st.tuples(st.just("go"), st.integers(0, READERS - 1), st.none()),
    st.tuples(st.just("come"), st.integers(0, READERS - 1), st.integers(0, 1)),
    st.tuples(st.just("come"), st.integers(0, READERS - 1), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 1), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 1), st.none()),
)


@given(st.lists(STEPS, min_size=10, max_size=60))
@settings(max_examples=300)
def test_listener_gets_each_event_once_and_in_order_or_a_reset(steps: list[tuple[str, int, object]]) -> None:
    site = Site.of(2)
    readers = [Reader(APPS[number % 2]) for number in range(READERS)]
    for step, number, more in steps:
        if step == "happen":
            assert isinstance(more, Feed)
            site.happen(number, more)
        elif step == "look":
            site.look(number)
        elif step == "forget":
            site.hubs[number].forget_unused(10.0, 1.0)
        elif step == "restart":
            site.restart(number)
            for reader in readers:
                if reader.process == number:
                    reader.listener = None
        else:
            _ACTS[step](site, readers[number], more)
    for process in range(2):
        site.look(process)
    for reader in readers:
        if reader.listener is not None:
            reader.take(site)
            check(site, reader)


def go(site: Site, reader: Reader, _: object) -> None:
    """Close the connection; what was not taken is not seen."""
    if reader.listener is not None:
        site.hubs[reader.process].leave(reader.listener, 0.0)
        reader.listener = None


def come(site: Site, reader: Reader, process: object) -> None:
    """Connect, perhaps to the other process, with the last id if there is one."""
    assert isinstance(process, int)
    go(site, reader, None)
    reader.process = process
    reader.listener = site.hubs[process].join(reader.app, 1, nothing, reader.last)
    if reader.last is None:
        reader.since, reader.rows = site.looked[process], []
        reader.last = EventId.parse(reader.listener.ring.id_text())


def take(site: Site, reader: Reader, _: object) -> None:
    """Take what there is."""
    if reader.listener is not None:
        reader.take(site)


_ACTS: dict[str, Callable[[Site, Reader, object], None]] = {"go": go, "come": come, "take": take}


def check(site: Site, reader: Reader) -> None:
    """Compare with what happened: each row of its app's tables since it loaded, once; of data the newest."""
    own = [row for row in site.rows if row.app == reader.app]
    for feed in TABLES:
        received = [row.number for row in reader.rows if row.feed is feed]
        expected = [row.number for row in site.rows[reader.since :] if row.app == reader.app and row.feed is feed]
        assert received == expected, feed
    received = [row.number for row in reader.rows if row.feed is Feed.DATA]
    assert received == sorted(set(received))
    news = [row.number for row in site.rows[reader.since :] if row.app == reader.app and row.feed is Feed.DATA]
    assert not news or not received or received[-1] == max(news)
    assert all(row in own for row in reader.rows), "another app's event"


def published(hub: EventHub, app: int, count: int, feed: Feed = Feed.ALERTS) -> None:
    for number in range(1, count + 1):
        hub.publish([News(app, feed, number, "alert", b"{}")])


def test_listener_that_falls_out_of_the_ring_is_told_to_load_again() -> None:
    hub = EventHub(ring_size=RING)
    listener = hub.join(1, 1, nothing)
    published(hub, 1, RING)
    batch = listener.take()
    assert batch is not None
    assert [event.news.number for event in batch.events] == [1, 2, 3, 4]
    published(hub, 1, RING + 1)
    batch = listener.take()
    assert batch is not None
    assert batch.is_reset
    assert listener.take() is None


def test_ring_keeps_only_the_newest_of_new_data() -> None:
    hub = EventHub(ring_size=RING)
    listener = hub.join(1, 1, nothing)
    published(hub, 1, 100, Feed.DATA)
    batch = listener.take()
    assert batch is not None
    assert [event.news.number for event in batch.events] == [100]


def test_event_of_an_app_never_reaches_a_listener_of_another() -> None:
    hub = EventHub()
    mine, others = hub.join(1, 1, nothing), hub.join(2, 1, nothing)
    assert hub.publish([News(1, Feed.ALERTS, 1, "alert", b"{}")]) == [mine]
    assert others.take() is None


def test_listener_over_the_bound_of_its_organisation_is_refused_and_others_are_not() -> None:
    hub = EventHub(organisation_max=2, listeners_max=4)
    first, _ = hub.join(1, 1, nothing), hub.join(1, 1, nothing)
    with pytest.raises(ListenersFull, match="your organisation"):
        hub.join(1, 1, nothing)
    hub.join(2, 2, nothing)
    hub.join(2, 3, nothing)
    with pytest.raises(ListenersFull, match="web process"):
        hub.join(2, 4, nothing)
    hub.leave(first, 0.0)
    hub.leave(first, 0.0)
    hub.join(1, 1, nothing)
    assert len(hub) == 4


def test_ring_without_listeners_stays_for_a_while_then_goes() -> None:
    hub = EventHub()
    listener = hub.join(1, 1, nothing)
    hub.leave(listener, 5.0)
    hub.forget_unused(94.0, 90.0)
    assert hub.apps() == [1]
    hub.forget_unused(95.0, 90.0)
    assert hub.is_unused()


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**12), st.tuples(*[st.integers(0, 10**15)] * len(Feed)))
def test_id_is_read_as_it_was_written(ring: int, number: int, seen: tuple[int, ...]) -> None:
    assert EventId.parse(str(EventId(ring, number, seen))) == EventId(ring, number, seen)


@pytest.mark.parametrize(
    "text", ["", "1", "x-1-0.0.0.0.0", "1-1-0.0.0.0", "1-1-0.0.0.0.0.0.0", "1-1-0.0.0.0.-1", "١-1-0.0.0.0.0"]
)
def test_text_that_is_no_id_is_none(text: str) -> None:
    assert EventId.parse(text) is None


def test_id_of_another_process_is_reset_when_the_ring_has_dropped_what_it_lacks() -> None:
    hub = EventHub(ring_size=RING)
    hub.join(1, 1, nothing)
    published(hub, 1, RING + 1)
    knows_first = hub.join(1, 1, nothing, EventId(7, 90, (1, 0, 0, 0, 0))).take()
    knows_none = hub.join(1, 1, nothing, EventId(7, 90, NOTHING_SEEN)).take()
    assert knows_first is not None
    assert knows_none is not None
    assert [event.news.number for event in knows_first.events] == [2, 3, 4, 5]
    assert knows_none.is_reset


def test_an_id_of_the_version_before_has_seen_nothing_of_the_stream() -> None:
    assert EventId.parse("1-2-3.4.5.6.7") == EventId(1, 2, (3, 4, 5, 6, 7, 0))
