"""Consumer groups: several consumers share the events of an app by key; each group has positions of its own.

A group's keys are hashed to a fixed number of partitions, each with a position and at most one consumer, so a million
keys cost what one costs. A consumer repeats: fetch, do the work, commit.

1. A fetch renews the lease, gives back what is more than a fair share, takes what is free, and returns the events after
   the positions of its partitions. What it got before and did not commit, it gets again.
2. A commit moves the positions of those partitions whose events it was given that far and still holds.
3. A consumer whose lease ran out is deleted by the next who comes, and its partitions are free. Its name is never given
   again, so whatever it still says is refused: ``ConsumerGone``. The fence is a number that grows each time partitions
   change hands: a consumer passes it on to what it writes to, which refuses a lower one.

Events of one key therefore come in their order, at least once. Each act locks its group alone. Enter by ``register``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from django.db import transaction
from django.http import Http404

from spm.clock import random_u64
from spm.errors import BadQuery, LimitExceeded, Refused
from spm.events import limits, log
from spm.events.errors import ConsumerGone
from spm.events.models import Consumer, ConsumerGroup, Event, Partition
from spm.events.outbox import Place
from spm.events.partitions import check_partition_by, key_of, partition_of, released_and_taken


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a consumer got: events, the position to commit when they are done, and its fence."""

    events: tuple[Event, ...]
    through: int
    fence: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDraft:
    """A group to be registered. ``position``: where its partitions begin."""

    name: str
    position: int
    partition_by: str = "key"
    kinds: tuple[str, ...] = ()
    partitions: int = limits.PARTITIONS


@transaction.atomic
def register(place: Place, draft: GroupDraft, *, now_ms: int) -> tuple[ConsumerGroup, bool]:
    """Register a group, or return the one of this name; the second value says whether it is new."""
    check_partition_by(draft.partition_by)
    present = ConsumerGroup.objects.filter(app=place.app, name=draft.name).first()
    if present is not None:
        count = present.partitions.count()
        if (present.partition_by, present.kinds, count) != (draft.partition_by, [*draft.kinds], draft.partitions):
            raise Refused(
                f"the group {draft.name} exists with other settings", remedy="Delete it, or use another name."
            )
        return present, False
    if ConsumerGroup.objects.filter(app=place.app).count() >= limits.GROUPS_MAX:
        raise LimitExceeded("the app has too many consumer groups", wanted=f"at most {limits.GROUPS_MAX}")
    _check_position(place, draft.position)
    group = ConsumerGroup.objects.create(
        app_id=place.app,
        name=draft.name,
        partition_by=draft.partition_by,
        kinds=[*draft.kinds],
        made_ms=now_ms,
    )
    Partition.objects.bulk_create(
        Partition(group=group, number=number, position=draft.position) for number in range(draft.partitions)
    )
    return group, True


def find(place: Place, name: str) -> ConsumerGroup:
    """Return an app's group; raises ``Http404`` where there is none."""
    group = ConsumerGroup.objects.filter(app=place.app, name=name).first()
    if group is None:
        raise Http404("There is no such consumer group.")
    return group


def join(group: ConsumerGroup, *, lease_s: int, now_ms: int) -> Consumer:
    """Add a consumer. It gets its partitions when it fetches. Raises ``LimitExceeded`` when the group is full."""
    with _locked(group, now_ms):
        partitions, consumers = group.partitions.count(), group.consumers.count()
        if consumers >= partitions:
            raise LimitExceeded("the group has a consumer for each partition", got=consumers + 1, wanted=partitions)
        return Consumer.objects.create(
            group=group,
            name=f"{random_u64():016x}",
            fence=group.fence,
            lease_s=lease_s,
            lease_until_ms=now_ms + lease_s * 1000,
        )


def leave(group: ConsumerGroup, name: str, *, now_ms: int) -> None:
    """Remove a consumer: its partitions are free at once."""
    with _locked(group, now_ms):
        _consumer(group, name).delete()


def fetch(group: ConsumerGroup, place: Place, name: str, *, count: int, now_ms: int) -> Fetched:
    """Return the next events of a consumer's partitions. Raises ``ConsumerGone`` or ``PositionGone``."""
    with _locked(group, now_ms) as locked:
        consumer = _renewed(locked, name, now_ms)
        own, partitions = _share(locked, consumer)
    positions = {each.number: each.position for each in own}
    if not own:
        return Fetched((), log.head_of(place.organisation).position, consumer.fence, ())
    page = log.read(
        place.organisation, place.app, min(positions.values()), kinds=group.kinds, count=limits.FETCH_SCAN_MAX
    )
    page = _own(page, group.partition_by, positions, partitions, count)
    mine = Partition.objects.filter(group=group, consumer=consumer, number__in=positions)
    if page.events:
        mine.update(fetched=page.through)
    elif page.through > min(positions.values()):  # nothing to do up to here
        mine.filter(position__lt=page.through).update(position=page.through, fetched=page.through)
    return Fetched(page.events, page.through, consumer.fence, tuple(positions))


def commit(group: ConsumerGroup, name: str, position: int, *, now_ms: int) -> int:
    """Note that a consumer has done everything it was given up to a position; return how many partitions moved."""
    with _locked(group, now_ms) as locked:
        consumer = _renewed(locked, name, now_ms)
        mine = Partition.objects.filter(group=group, consumer=consumer, fetched__gte=position)
        if not mine.exists():
            raise BadQuery(f"this consumer was not given events up to position {position}: fetch first")
        return mine.filter(position__lt=position).update(position=position)


def seek(group: ConsumerGroup, place: Place, position: int, *, now_ms: int) -> None:
    """Let the whole group go on from another position. What its consumers have fetched before cannot be committed."""
    _check_position(place, position)
    with _locked(group, now_ms):
        group.partitions.update(position=position, fetched=None)


def _check_position(place: Place, position: int) -> None:
    log.read(place.organisation, place.app, position, count=1)


@contextmanager
def _locked(group: ConsumerGroup, now_ms: int) -> Iterator[ConsumerGroup]:
    """Lock a group, and delete its consumers whose lease has run out."""
    with transaction.atomic():
        locked = ConsumerGroup.objects.select_for_update().filter(pk=group.pk).first()
        if locked is None:
            raise ConsumerGone(f"the group {group.name} was deleted")
        for consumer in locked.consumers.filter(lease_until_ms__lte=now_ms):
            _free(consumer)
        yield locked


def _free(consumer: Consumer) -> None:
    consumer.partitions.update(consumer=None, fetched=None)
    consumer.delete()


def _consumer(group: ConsumerGroup, name: str) -> Consumer:
    consumer = group.consumers.filter(name=name).first()
    if consumer is None:
        raise ConsumerGone(
            "this consumer left, or its lease ran out: others have its keys",
            got=name[:32],
            remedy="Join again; what was not committed is handed out again.",
        )
    return consumer


def _renewed(group: ConsumerGroup, name: str, now_ms: int) -> Consumer:
    consumer = _consumer(group, name)
    consumer.lease_until_ms = now_ms + consumer.lease_s * 1000
    consumer.save(update_fields=["lease_until_ms"])
    return consumer


def _share(group: ConsumerGroup, consumer: Consumer) -> tuple[list[Partition], int]:
    """Bring a consumer's partitions to its share; return them, and how many there are in all."""
    rows = {each.number: each for each in group.partitions.all()}
    released, taken = released_and_taken(
        [number for number, each in rows.items() if each.consumer_id == consumer.pk],
        [number for number, each in rows.items() if each.consumer_id is None],
        partitions=len(rows),
        consumers=group.consumers.count(),
    )
    if released:
        group.partitions.filter(number__in=released).update(consumer=None, fetched=None)
    if taken:
        group.partitions.filter(number__in=taken).update(consumer=consumer, fetched=None)
        group.fence = consumer.fence = group.fence + 1
        group.save(update_fields=["fence"])
        consumer.save(update_fields=["fence"])
    return list(group.partitions.filter(consumer=consumer)), len(rows)


def _own(page: log.Page, partition_by: str, positions: dict[int, int], partitions: int, count: int) -> log.Page:
    """Return those events of a page that belong to these partitions and come after their positions, at most so many."""
    own: list[Event] = []
    for event in page.events:
        number = partition_of(key_of(log.as_json(event), partition_by), partitions)
        if number in positions and (event.position or 0) > positions[number]:
            own.append(event)
            if len(own) == count:
                return log.Page(tuple(own), event.position or 0)
    return replace(page, events=tuple(own))


def lag_of(group: ConsumerGroup, organisation: int) -> int:
    """Return how many positions the slowest partition is behind the newest event."""
    slowest = group.partitions.order_by("position").first()
    return log.head_of(organisation).position - slowest.position if slowest else 0
