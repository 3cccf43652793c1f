"""What people do to telling: add and remove receivers, try again, test, silence, acknowledge. Each is audited.

Each action is one transaction; groups that it concerns are looked at again at once.
"""

from django.contrib.auth.models import User
from django.db import transaction

from alerts.models import Episode, EpisodeStatus, Severity
from alerts.models.telling import (
    Acknowledgement,
    ContactPoint,
    Delivery,
    Notification,
    NotificationGroup,
    Receiver,
    Silence,
)
from alerts.notify.registry import kind_of, receiver_hints, shown
from alerts.telling import limits
from alerts.telling.decide.matchers import read_matchers
from alerts.telling.hook import mark_organisation, write_receivers
from spm.accounts import audit
from spm.accounts.models import Organisation
from spm.errors import BadQuery, LimitExceeded, Refused

_TEST_GROUP = "test"


@transaction.atomic
def add_contact_point(
    organisation: Organisation, name: str, targets: tuple[str, ...], *, by: User, now_ms: int
) -> ContactPoint:
    """Create or replace the contact point of this name; raises ``BadQuery`` for a receiver of no known kind."""
    organisation = Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)  # its bounds hold
    known = Receiver.objects.filter(organisation=organisation)
    count_before = known.count()
    point, is_new = ContactPoint.objects.get_or_create(organisation=organisation, name=name)
    point.receivers.set([_receiver(organisation, target, now_ms) for target in targets])
    if known.count() > max(count_before, limits.RECEIVERS_MAX):
        raise LimitExceeded("too many receivers", got=known.count(), wanted=f"at most {limits.RECEIVERS_MAX}")
    count = ContactPoint.objects.filter(organisation=organisation).count()
    if is_new and count > limits.CONTACT_POINTS_MAX:
        raise LimitExceeded("too many contact points", got=count, wanted=f"at most {limits.CONTACT_POINTS_MAX}")
    detail = {"receivers": [shown(kind_of(target) or "", target) for target in targets]}
    audit.record("contact-point.write", name, actor=by, organisation=organisation, detail=detail)
    mark_organisation(organisation.pk, now_ms=now_ms)
    return point


@transaction.atomic
def want_report(point: ContactPoint, *, wants: bool, by: User) -> None:
    """Have the weekly noise report mailed to the point's addresses, or not any more."""
    if ContactPoint.objects.filter(pk=point.pk, wants_report=not wants).update(wants_report=wants):
        action = "contact-point.report" if wants else "contact-point.no-report"
        audit.record(action, point.name, actor=by, organisation=point.organisation)


@transaction.atomic
def remove_contact_point(point: ContactPoint, *, by: User, now_ms: int) -> None:
    """Delete a contact point with its policies. Its receivers stay known, so that what they were told is ended."""
    organisation = point.organisation
    point.delete()
    audit.record("contact-point.delete", point.name, actor=by, organisation=organisation)
    mark_organisation(organisation.pk, now_ms=now_ms)


@transaction.atomic
def try_again(notification: Notification, *, by: User, now_ms: int) -> None:
    """Try a waiting notification now. For a dead one, what is still to be told is told anew, under the next number."""
    target = shown(notification.receiver.kind, notification.receiver.target)
    detail = {"notification": notification.pk}
    audit.record("notification.retry", target, actor=by, organisation=notification.organisation, detail=detail)
    waiting = Notification.objects.filter(pk=notification.pk, state=Delivery.WAITING)
    if waiting.update(next_attempt_ms=0):
        return
    groups = NotificationGroup.objects.filter(receiver=notification.receiver_id).order_by("pk")
    chosen = [group.pk for group in groups.select_for_update(no_key=True)]
    NotificationGroup.objects.filter(pk__in=chosen).update(blocked_until_ms=0, next_look_ms=now_ms)


@transaction.atomic
def test_fire(receiver: Receiver, *, by: User, now_ms: int) -> Notification:
    """Write a test notification to the receiver, in a group of its own. It is delivered as all others are."""
    if receiver.confirmed_ms is None:
        raise Refused("this address has not agreed to get notifications", remedy="Its confirmation mail has a link.")
    group, _ = NotificationGroup.objects.get_or_create(receiver=receiver, key=_TEST_GROUP, defaults={"labels": {}})
    group = NotificationGroup.objects.select_for_update(no_key=True).get(pk=group.pk)
    key = f"{receiver.pk}.{group.pk}.{group.n + 1}"
    notification = Notification.objects.create(
        organisation_id=receiver.organisation_id,
        receiver=receiver,
        key=key,
        body=_test_body(receiver, by, key, n=group.n + 1, now_ms=now_ms),
        levels={},
        created_ms=now_ms,
        next_attempt_ms=0,
    )
    NotificationGroup.objects.filter(pk=group.pk).update(n=group.n + 1, first_key=group.first_key or key)
    audit.record("receiver.test", shown(receiver.kind, receiver.target), actor=by, organisation=receiver.organisation)
    return notification


@transaction.atomic
def add_silence(
    organisation: Organisation,
    matchers: str,
    *,
    from_ms: int,
    to_ms: int,
    comment: str,
    by: User | None,
    now_ms: int,
    name: str = "",
) -> Silence:
    """Silence alerts that match during [from_ms, to_ms); raises ``BadQuery`` with what is wrong.

    ``name`` is that of a program, for the audit log; the comment of a link of a mail names its receiver.
    """
    read_matchers(matchers)
    organisation = Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)  # its bound holds
    if not from_ms < to_ms <= from_ms + limits.SILENCE_MS_MAX:
        raise BadQuery("a silence ends after its beginning, and at most a year later")
    if to_ms <= now_ms:
        raise BadQuery("a silence ends in the future")
    if Silence.objects.filter(organisation=organisation, to_ms__gt=now_ms).count() >= limits.SILENCES_MAX:
        raise LimitExceeded("too many silences", got=limits.SILENCES_MAX, remedy="End one first.")
    silence = Silence.objects.create(
        organisation=organisation,
        matchers=matchers.strip(),
        from_ms=from_ms,
        to_ms=to_ms,
        comment=comment,
        created_by=by,
        created_ms=now_ms,
    )
    detail = {"silence": silence.pk}
    audit.record("silence.create", matchers, actor=by, organisation=organisation, detail=detail, name=name or comment)
    mark_organisation(organisation.pk, now_ms=now_ms)
    return silence


@transaction.atomic
def end_silence(silence: Silence, *, by: User | None, now_ms: int, name: str = "") -> None:
    """End a silence now; one that has not begun never does. One that is over stays as it is, and nothing is noted."""
    going_on = Silence.objects.filter(pk=silence.pk, to_ms__gt=now_ms)
    if not going_on.update(to_ms=max(now_ms, silence.from_ms)):
        return
    audit.record("silence.end", silence.matchers, actor=by, organisation=silence.organisation, name=name)
    mark_organisation(silence.organisation_id, now_ms=now_ms)


@transaction.atomic
def take(notification: Notification, *, by: User | Receiver, until_ms: int, now_ms: int) -> int:
    """Acknowledge the open episodes of a notification; ``by`` is a receiver if its link was used. Returns how many."""
    rows = Episode.objects.filter(pk__in=list(map(int, notification.levels)), status=EpisodeStatus.OPEN)
    episodes = list(rows.select_related("rule__app__organisation"))
    for episode in episodes:
        _take(episode, by, until_ms=until_ms, now_ms=now_ms)
    return len(episodes)


@transaction.atomic
def acknowledge_episode(episode: Episode, *, by: User, for_ms: int, now_ms: int) -> Acknowledgement:
    """Acknowledge one open episode for a time; raises ``Refused`` for one that has ended."""
    if episode.status != EpisodeStatus.OPEN:
        raise Refused("this alert is over", remedy="Only an open one is acknowledged.")
    return _take(episode, by, until_ms=now_ms + for_ms, now_ms=now_ms)


def _take(episode: Episode, by: User | Receiver, *, until_ms: int, now_ms: int) -> Acknowledgement:
    """Keep the episode from being repeated until a time, unless it begins anew."""
    person, receiver = (by, None) if isinstance(by, User) else (None, by)
    values = {"by": person, "receiver": receiver, "at_ms": now_ms, "until_ms": until_ms}
    first = {**values, "first_ms": now_ms}
    row, _ = Acknowledgement.objects.update_or_create(episode=episode, defaults=values, create_defaults=first)
    audit.record(
        "alert.acknowledge",
        episode.rule.name,
        actor=person,
        organisation=episode.rule.app.organisation,
        detail={"episode": episode.pk},
        name=shown(receiver.kind, receiver.target) if receiver else "",
    )
    return row


def _receiver(organisation: Organisation, target: str, now_ms: int) -> Receiver:
    kind = kind_of(target)
    if kind is None:
        raise BadQuery(f"“{target}” is not a valid {receiver_hints()}")
    write_receivers(organisation.pk, {(kind, target)}, now_ms=now_ms)
    return Receiver.objects.get(organisation=organisation, kind=kind, target=target)


def _test_body(receiver: Receiver, by: User, key: str, *, n: int, now_ms: int) -> dict[str, object]:
    line = {
        "kind": "test",
        "word": "test",
        "perhaps": False,
        "episode": 0,
        "rule": 0,
        "name": f"Test by {by.get_username()}",
        "app": 0,
        "app_name": receiver.organisation.name,
        "severity": Severity.INFO.value,
        "labels": {},
        "value": "",
        "expr": "nothing is wrong",
        "comparator": "",
        "threshold": "",
        "for_ms": 0,
        "start_ms": now_ms,
        "end_ms": None,
        "end_reason": "",
    }
    return {
        "key": key,
        "n": n,
        "thread": key,
        "receivers": [receiver.target],
        "at_ms": now_ms,
        "groups": [],
        "counts": {"test": 1},
        "lines": [line],
        "more": {},
    }
