"""Events get positions in the order in which they are committed, and are read from any position until it is gone."""

import pytest
from django.db import transaction

from spm.clock import FakeClock
from spm.errors import BadQuery, LimitExceeded, Refused
from spm.events import limits, log, outbox, relay
from spm.events.errors import PositionGone, TooSlow
from spm.events.models import Event, StreamHead
from spm.events.outbox import Draft, Place
from tests.spm.events.conftest import NOW_MS, Emit, place_of


def texts_after(place: Place, position: int) -> list[str]:
    return [event.text for event in log.read(place.organisation, place.app, position).events]


def test_events_of_one_cause_come_in_their_order_and_before_the_next_cause(place: Place, emit: Emit) -> None:
    emit("muted", "mailed", "closed", relayed=False)
    emit("muted again", relayed=False)
    relay.advance_all()
    page = log.read(place.organisation, place.app, 0)
    assert [(event.position, event.text) for event in page.events] == [
        *((1, "muted"), (2, "mailed"), (3, "closed"), (4, "muted again")),
    ]
    assert page.through == 4


def test_an_event_is_not_read_before_it_has_a_position(place: Place, emit: Emit) -> None:
    emit("waits", relayed=False)
    assert texts_after(place, 0) == []
    assert relay.advance(place.organisation) == 1
    assert relay.advance(place.organisation) == 0
    assert texts_after(place, 0) == ["waits"]


def test_an_event_of_a_transaction_that_fails_is_never_there(place: Place) -> None:
    with transaction.atomic():
        outbox.emit(place, [Draft(kind="note", text="no", at_ms=1)], now_ms=1)
        transaction.set_rollback(True)
    relay.advance_all()
    assert not Event.objects.exists()


def test_each_organisation_has_positions_of_its_own(place: Place, emit: Emit) -> None:
    other = place_of("two")
    emit("ours")
    with transaction.atomic():
        outbox.emit(other, [Draft(kind="note", text="theirs", at_ms=1)], now_ms=1)
    relay.advance_all()
    assert texts_after(place, 0) == ["ours"]
    assert texts_after(other, 0) == ["theirs"]
    assert StreamHead.objects.get(organisation=other.organisation).position == 1


def test_pages_of_any_size_give_all_events_once(place: Place, emit: Emit) -> None:
    emit(*map(str, range(23)))
    for count in (1, 2, 7, 23, 24):
        position, seen = 0, list[str]()
        while page := log.read(place.organisation, place.app, position, count=count):
            seen += [event.text for event in page.events]
            if page.through == position:
                break
            position = page.through
        assert seen == [*map(str, range(23))]


def test_a_position_that_is_gone_is_an_error_that_names_the_oldest(place: Place, emit: Emit) -> None:
    emit("a", "b", "c")
    assert log.prune(NOW_MS, kept_max=1) == 2
    assert texts_after(place, 2) == ["c"]
    with pytest.raises(PositionGone, match="the oldest position to go on from is 2"):
        texts_after(place, 1)
    assert log.position_of(place.organisation, "oldest") == 2


def test_events_past_their_retention_are_deleted_and_newer_ones_stay(place: Place, emit: Emit) -> None:
    emit("old", "older")
    Event.objects.filter(text="older").update(made_ms=NOW_MS - limits.KEEP_MS - 1)
    assert log.prune(NOW_MS) == 0  # only a beginning of the stream is deleted
    Event.objects.filter(text="old").update(made_ms=NOW_MS - limits.KEEP_MS - 1)
    assert log.prune(NOW_MS) == 2


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", "9" * 19])
def test_what_is_no_position_is_refused(place: Place, text: str) -> None:
    with pytest.raises(BadQuery, match="neither a position"):
        log.position_of(place.organisation, text)


def test_a_position_ahead_of_the_stream_is_refused(place: Place, emit: Emit) -> None:
    emit("a")
    with pytest.raises(BadQuery, match="position 2 is ahead of the newest event, 1"):
        texts_after(place, 2)


def test_an_event_that_is_posted_twice_is_one_event(place: Place) -> None:
    clock, draft = FakeClock(NOW_MS), Draft(kind="deploy", text="api 4.2", at_ms=NOW_MS, event_id="build-7")
    first, is_new = outbox.post(place, draft, clock, clock.monotonic())
    again, is_new_again = outbox.post(place, draft, clock, clock.monotonic())
    assert (first.pk, is_new, is_new_again) == (again.pk, True, False)
    other = Draft(kind="deploy", text="api 4.3", at_ms=NOW_MS, event_id="build-7")
    with pytest.raises(Refused, match="another event has this id"):
        outbox.post(place, other, clock, clock.monotonic())


def test_the_product_may_emit_an_event_again(place: Place) -> None:
    for _ in range(2):
        with transaction.atomic():
            outbox.emit(place, [Draft(kind="alert", text="fires", at_ms=1, event_id="episode-1-1")], now_ms=1)
    assert Event.objects.count() == 1


@pytest.mark.seed("A17", compares="an event that took longer than its bound: its writer is told, and it is not stored")
def test_a_post_that_takes_too_long_is_not_stored(place: Place) -> None:
    clock = FakeClock(NOW_MS)
    begun_s = clock.monotonic() - limits.COMMIT_S_MAX - 1
    with pytest.raises(TooSlow):
        outbox.post(place, Draft(kind="note", text="late", at_ms=1), clock, begun_s)
    assert not Event.objects.exists()


def test_a_body_one_byte_over_its_bound_is_refused(place: Place) -> None:
    clock, room = FakeClock(NOW_MS), limits.BODY_BYTES_MAX - len('{"a":""}')
    fits, over = ({"a": "x" * count} for count in (room, room + 1))
    outbox.post(place, Draft(kind="note", text="fits", at_ms=1, body=fits), clock, clock.monotonic())
    with pytest.raises(LimitExceeded, match="4097 bytes"):
        outbox.post(place, Draft(kind="note", text="over", at_ms=1, body=over), clock, clock.monotonic())
