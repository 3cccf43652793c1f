"""Consumers of a group share its keys: each event is handed out in the order of its key until it is committed."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import BadQuery, LimitExceeded, Refused
from spm.events import groups, limits, log
from spm.events.errors import ConsumerGone, PositionGone
from spm.events.groups import Fetched, GroupDraft
from spm.events.models import Consumer, ConsumerGroup, Partition
from spm.events.outbox import Place
from spm.events.partitions import key_of, partition_of, released_and_taken
from tests.spm.events.conftest import NOW_MS, Emit

LEASE_MS = limits.LEASE_S * 1000


@pytest.fixture
def group(place: Place) -> ConsumerGroup:
    """A group that begins at the beginning."""
    return registered(place)


def registered(place: Place, name: str = "mailers", **more: object) -> ConsumerGroup:
    return groups.register(place, GroupDraft(name=name, position=0, **more), now_ms=NOW_MS)[0]  # type: ignore[arg-type]


def join(group: ConsumerGroup, now_ms: int = NOW_MS) -> str:
    return groups.join(group, lease_s=limits.LEASE_S, now_ms=now_ms).name


def fetch(group: ConsumerGroup, place: Place, name: str, *, count: int = 100, now_ms: int = NOW_MS) -> Fetched:
    return groups.fetch(group, place, name, count=count, now_ms=now_ms)


def texts(fetched: Fetched) -> list[str]:
    return [event.text for event in fetched.events]


def test_one_consumer_gets_all_events_in_order(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit(*map(str, range(50)))
    assert texts(fetch(group, place, join(group))) == [*map(str, range(50))]


def test_what_is_not_committed_is_handed_out_again(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b", "c")
    name = join(group)
    first = fetch(group, place, name, count=2)
    assert texts(first) == ["a", "b"]
    assert texts(fetch(group, place, name, count=2)) == ["a", "b"]
    groups.commit(group, name, first.through, now_ms=NOW_MS)
    assert texts(fetch(group, place, name)) == ["c"]


@pytest.mark.seed("A36", compares="what three consumers of a group get: each event once, each key at one of them")
def test_a36_consumers_share_keys_and_none_gets_anothers(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    names, owners = [join(group) for _ in range(3)], defaultdict[str, set[str]](set)
    for name in names * 2:
        fetch(group, place, name)  # until each has its share
    for number in range(40):
        emit(f"{number}", key=f"host-{number % 10}")
    seen = []
    for name in names:
        fetched = fetch(group, place, name)
        seen += texts(fetched)
        for event in fetched.events:
            owners[event.key].add(name)
        own = [int(event.text) for event in fetched.events]
        assert own == sorted(own)
    assert sorted(seen, key=int) == [*map(str, range(40))]
    assert {len(each) for each in owners.values()} == {1}


@pytest.mark.seed("A36", compares="two groups of one stream, with partition keys of their own, added and removed")
def test_a36_groups_have_positions_and_keys_of_their_own(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b")
    name = join(group)
    groups.commit(group, name, fetch(group, place, name).through, now_ms=NOW_MS)
    other = registered(place, "archive", partition_by="kind", kinds=("note",))
    assert texts(fetch(other, place, join(other))) == ["a", "b"]
    assert groups.lag_of(group, place.organisation) == 0
    assert groups.lag_of(other, place.organisation) == 2
    other.delete()
    emit("c")
    assert texts(fetch(group, place, name)) == ["c"]


def test_a_consumer_that_dies_loses_its_keys_after_its_lease(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b")
    dead = join(group)
    before = fetch(group, place, dead)
    heir = join(group)
    assert texts(fetch(group, place, heir, now_ms=NOW_MS + LEASE_MS - 1)) == []
    after = fetch(group, place, heir, now_ms=NOW_MS + LEASE_MS)
    assert texts(after) == ["a", "b"]
    assert after.fence > before.fence
    with pytest.raises(ConsumerGone, match="its lease ran out"):
        groups.commit(group, dead, before.through, now_ms=NOW_MS + LEASE_MS)
    with pytest.raises(ConsumerGone):
        fetch(group, place, dead, now_ms=NOW_MS + LEASE_MS)


def test_a_commit_does_not_move_keys_that_came_after_the_fetch(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    one, two = join(group), join(group)
    fetch(group, place, one)
    fetch(group, place, two)
    emit(*map(str, range(30)))
    got = fetch(group, place, one)
    groups.leave(group, two, now_ms=NOW_MS)
    groups.commit(group, one, got.through, now_ms=NOW_MS)
    rest = fetch(group, place, one)  # takes what the other has left
    assert sorted(texts(got) + texts(rest), key=int) == [*map(str, range(30))]


def test_a_consumer_cannot_commit_what_it_was_not_given(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b")
    name = join(group)
    fetch(group, place, name, count=1)
    with pytest.raises(BadQuery, match="was not given events up to position 2"):
        groups.commit(group, name, 2, now_ms=NOW_MS)


def test_a_group_goes_on_from_where_it_is_put(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b", "c")
    name = join(group)
    got = fetch(group, place, name)
    groups.seek(group, place, 1, now_ms=NOW_MS)
    with pytest.raises(BadQuery):  # it was given them before
        groups.commit(group, name, got.through, now_ms=NOW_MS)
    assert texts(fetch(group, place, name)) == ["b", "c"]


def test_a_group_that_was_away_for_too_long_is_told_so(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    emit("a", "b", "c")
    log.prune(NOW_MS, kept_max=1)
    name = join(group)
    with pytest.raises(PositionGone):
        fetch(group, place, name)
    groups.seek(group, place, 2, now_ms=NOW_MS)
    assert texts(fetch(group, place, name)) == ["c"]


def test_kinds_that_a_group_does_not_read_move_it_on(place: Place, emit: Emit) -> None:
    group = registered(place, kinds=("deploy",))
    emit("a", "b")
    fetched = fetch(group, place, join(group))
    assert (texts(fetched), groups.lag_of(group, place.organisation)) == ([], 0)


def test_registering_again_changes_nothing_and_other_settings_are_refused(place: Place, group: ConsumerGroup) -> None:
    assert registered(place).pk == group.pk
    with pytest.raises(Refused, match="exists with other settings"):
        registered(place, partition_by="kind")
    with pytest.raises(BadQuery, match="partition_by="):
        registered(place, "x", partition_by="nothing")


def test_a_consumer_more_than_partitions_is_refused(place: Place) -> None:
    group = registered(place, partitions=2)
    join(group)
    join(group)
    with pytest.raises(LimitExceeded, match="a consumer for each partition"):
        join(group)
    assert join(group, NOW_MS + LEASE_MS)  # the leases of both have run out


@pytest.mark.seed("A16", compares="rows kept for 2,000 keys read by a group: as many as for one key")
def test_a16_a_key_costs_no_row(place: Place, group: ConsumerGroup, emit: Emit) -> None:
    name = join(group)
    for first in range(0, 2_000, 500):
        emit(*(f"key-{first + number}" for number in range(500)))
        fetched = fetch(group, place, name, count=500)
        assert len(fetched.events) == 500
        groups.commit(group, name, fetched.through, now_ms=NOW_MS)
    assert (Partition.objects.count(), Consumer.objects.count()) == (limits.PARTITIONS, 1)


@given(st.integers(1, 64), st.integers(1, 64), st.data())
def test_shares_end_fair_in_whatever_order_consumers_come(partitions: int, count: int, data: st.DataObject) -> None:
    consumers = min(count, partitions)
    owner = dict.fromkeys(range(partitions), -1)
    for _ in range(3):
        for consumer in data.draw(st.permutations(range(consumers))):
            own = [number for number, each in owner.items() if each == consumer]
            free = [number for number, each in owner.items() if each == -1]
            released, taken = released_and_taken(own, free, partitions=partitions, consumers=consumers)
            owner |= dict.fromkeys(released, -1) | dict.fromkeys(taken, consumer)
    counts = [[*owner.values()].count(consumer) for consumer in range(consumers)]
    assert -1 not in owner.values()
    assert max(counts) <= -(-partitions // consumers)


@pytest.mark.parametrize(
    ("by", "key"),
    [("key", "k"), ("kind", "alert"), ("body.labels.host", "db1"), ("body.nothing", ""), ("body.labels.host.x", "")],
)
def test_a_partition_key_is_any_part_of_an_event(by: str, key: str) -> None:
    event = {"key": "k", "kind": "alert", "body": {"labels": {"host": "db1"}}}
    assert key_of(event, by) == key


def test_many_keys_spread_evenly_over_partitions() -> None:
    counts = [0] * 16
    for number in range(100_000):
        counts[partition_of(f"host-{number}", 16)] += 1
    assert max(counts) < 1.1 * min(counts)
    assert partition_of("host-1", 16) == 1  # never another one: positions rest on it
