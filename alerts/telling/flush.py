"""Writes the notifications that are due: one transaction for one receiver.

1. Lock the receiver, its organisation's budget, then its groups that are to be looked at, in the order of their ids.
2. A group with an open notification is left alone: what happens meanwhile is told by the next one, as a difference.
3. For each other group, decide for each of its episodes which line it gets (``decide``), and when to look again.
4. Groups that are due are distributed over notifications within the budgets (``pack``).
5. Each notification is frozen: its number, its key, its body and what its receiver will believe once it arrived.

A crash before the commit changes nothing; after it the notification is written. Enter by ``flush_due``.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from django.db import transaction
from django.db.models import F, Min, Q

from alerts.models import Episode, EpisodeStatus, Outbox
from alerts.models.telling import (
    Acknowledgement,
    Delivery,
    LastWord,
    Notification,
    NotificationGroup,
    Receiver,
    TellingClock,
)
from alerts.notify.alertmanager import KIND as ALERTMANAGER
from alerts.telling import body, budgets, limits
from alerts.telling.configuration import Configuration, judged_positions, read_configuration, view
from alerts.telling.decide import episodes as words
from alerts.telling.decide.budget import pack
from alerts.telling.decide.covers import Cover, cover_at
from alerts.telling.decide.decision import Circumstances, decide
from alerts.telling.decide.episodes import Decision, EpisodeView, Level, LineKind
from alerts.telling.decide.inhibition import inhibitors
from alerts.telling.decide.matchers import select
from alerts.telling.decide.timing import AT_ONCE, GroupState, Waits, due_ms, next_look_ms, repeat_ms
from alerts.telling.decide.windows import windows
from alerts.telling.hook import own_addresses, routes_of
from spm.arrays import BOOL

log = logging.getLogger("spm.alerts")
Decided = tuple[LastWord, EpisodeView, Decision]
_AGAIN = Decision(LineKind.REPEAT, "it goes on, and nobody has acknowledged it")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a notification: the row of the receiver's last word, and what it gets to hear now."""

    word: LastWord
    view: EpisodeView
    decision: Decision

    @property
    def kind(self) -> LineKind:
        assert self.decision.kind is not None, "BUG: a line without a kind"
        return self.decision.kind


@dataclass(frozen=True, slots=True)
class Draft:
    """What is due for one group now (``lines``), or when to look at it again."""

    group: NotificationGroup
    lines: Sequence[Line] = field(default=())
    look_ms: int | None = None


def flush_due(now_ms: int) -> int:
    """Write every notification that is due, up to the bound of a round; returns how many."""
    follow_clock(now_ms)
    due = NotificationGroup.objects.filter(next_look_ms__lte=now_ms).values("receiver")
    oldest_first = due.annotate(first_ms=Min("next_look_ms")).order_by("first_ms", "receiver")
    written = 0
    for receiver in list(oldest_first.values_list("receiver", flat=True)[: limits.ROUND_MAX]):
        try:
            written += flush_receiver(receiver, now_ms)
        except Exception:  # a loop's top: the other receivers must be told, and this one is due again
            log.exception("the notifications of receiver %d could not be written", receiver)
    return written


def follow_clock(now_ms: int) -> None:
    """Note how far the clock has come; if it was set back, what waits for a time of the old one is looked at now.

    Nothing is told twice or early for that: each group is looked at, and decides anew. Clocks of several machines
    differ a little, which is no clock that was set back.
    """
    seen_ms = TellingClock.objects.values_list("seen_ms", flat=True).first()
    if seen_ms is None or abs(now_ms - seen_ms) >= limits.CLOCK_NOTED_MS:
        _note_clock(now_ms)


@transaction.atomic
def _note_clock(now_ms: int) -> None:
    TellingClock.objects.get_or_create(pk=1, defaults={"seen_ms": now_ms})
    clock = TellingClock.objects.select_for_update().get(pk=1)
    back_ms = clock.seen_ms - now_ms
    if abs(back_ms) < limits.CLOCK_NOTED_MS:
        return  # another process was first
    TellingClock.objects.update(seen_ms=now_ms)
    if back_ms < 0:
        return
    log.warning("the clock was set back by %d s or more: what is to be told is looked at anew", back_ms // 1_000)
    for messages in (Notification.objects, Outbox.objects):
        messages.filter(state=Delivery.WAITING, next_attempt_ms__gt=now_ms).update(next_attempt_ms=now_ms)
    escalated = LastWord.objects.filter(level=Level.NOTHING, not_before_ms__gt=now_ms)
    escalated.update(not_before_ms=F("not_before_ms") - back_ms)
    groups = NotificationGroup.objects.order_by("pk").select_for_update(no_key=True)
    ahead = [row.pk for row in groups.filter(Q(next_look_ms__gt=now_ms) | Q(last_flush_ms__gt=now_ms))]
    for first in range(0, len(ahead), limits.GROUPS_MAX):
        rows = NotificationGroup.objects.filter(pk__in=ahead[first : first + limits.GROUPS_MAX])
        rows.filter(last_flush_ms__gt=now_ms).update(last_flush_ms=now_ms)
        rows.filter(blocked_until_ms__gt=now_ms).update(blocked_until_ms=0)
        rows.filter(next_look_ms__gt=now_ms).update(next_look_ms=now_ms)


@transaction.atomic
def flush_receiver(receiver_id: int, now_ms: int) -> int:
    """Write the notifications that are due for one receiver; returns how many."""
    receiver = Receiver.objects.select_for_update(no_key=True).get(pk=receiver_id)
    rows = NotificationGroup.objects.filter(receiver=receiver, next_look_ms__lte=now_ms).order_by("pk")
    if receiver.confirmed_ms is None:  # its confirmation has all groups looked at
        rows.update(next_look_ms=None)
        return 0
    buckets = budgets.lock(receiver, now_ms)
    groups = list(rows.select_for_update(no_key=True).prefetch_related("policy")[: limits.GROUPS_MAX])
    drafts = _drafts(receiver, groups, now_ms)
    due = [draft for draft in drafts if draft.lines]
    if _groups_itself(receiver):
        packing = pack(due, buckets[-1])  # no person reads these, so only the organisation's budget bounds them
    else:
        packing = pack(due, *buckets, digest_from_ms=_digest_from_ms(receiver, now_ms))
    for each in packing.notifications:
        freeze(receiver, each, now_ms)
    _look_again(drafts, packing.wait_until_ms)
    budgets.spend(receiver, buckets, len(packing.notifications))
    return len(packing.notifications)


def freeze(receiver: Receiver, drafts: Sequence[Draft], now_ms: int) -> Notification:
    """Write one notification with its key and its body, and make it the open one of its groups."""
    groups = [draft.group for draft in drafts]
    if len(groups) == 1:
        n = groups[0].n + 1
        key = f"{receiver.pk}.{groups[0].pk}.{n}"
    else:
        n = receiver.digests + 1
        key = _digest_key(receiver, n)
        receiver.digests = n
        Receiver.objects.filter(pk=receiver.pk).update(digests=n)
    lines = [line for draft in drafts for line in draft.lines]
    notification = Notification.objects.create(
        organisation_id=receiver.organisation_id,
        receiver=receiver,
        key=key,
        body=body.write(receiver, groups, lines, key=key, n=n, now_ms=now_ms),
        levels={str(line.view.id): line.view.level.value for line in lines},
        created_ms=now_ms,
        next_attempt_ms=0,
    )
    rows = NotificationGroup.objects.filter(pk__in=[group.pk for group in groups])
    rows.filter(first_key="").update(first_key=key)
    rows.update(n=F("n") + 1, open=notification, last_flush_ms=now_ms, next_look_ms=None)
    reopened = [line.view.id for line in lines if line.kind is LineKind.REOPENED]
    Acknowledgement.objects.filter(episode__in=reopened).delete()
    return notification


def is_open(group: NotificationGroup) -> bool:
    """Whether a notification of the group is neither delivered nor given up."""
    return group.open_id is not None


def _look_again(drafts: Sequence[Draft], wait_until_ms: int | None) -> None:
    """Write when to look again at the groups of which nothing is due, and at those that wait for the budget."""
    looks: dict[int | None, list[int]] = defaultdict(list)
    for draft in drafts:
        if not draft.lines:
            looks[draft.look_ms].append(draft.group.pk)
        elif wait_until_ms is not None:
            looks[wait_until_ms].append(draft.group.pk)
    for look_ms, groups in looks.items():
        NotificationGroup.objects.filter(pk__in=groups).update(next_look_ms=look_ms)


def _drafts(receiver: Receiver, groups: Sequence[NotificationGroup], now_ms: int) -> list[Draft]:
    """Return what is due for each group, without those that have an open notification: its end looks at them."""
    free = [group for group in groups if not is_open(group)]
    busy = [group.pk for group in groups if is_open(group)]
    NotificationGroup.objects.filter(pk__in=busy).update(next_look_ms=None)
    if not free:
        return []
    configuration = read_configuration(receiver.organisation_id, now_ms)
    over, never = (EpisodeStatus.ENDED, EpisodeStatus.MERGED), (EpisodeStatus.VOID, EpisodeStatus.MERGED)
    rows = LastWord.objects.filter(group__in=free).exclude(level=Level.NOTHING, episode__status__in=never)
    rows = rows.exclude(level=Level.ENDED, is_doubtful=False, episode__status__in=over)
    by_group: dict[int, list[tuple[LastWord, EpisodeView]]] = {group.pk: [] for group in free}
    of_rule = ("episode__rule__app", "episode__rule__group", "episode__rule__created_by")
    for word in rows.select_related(*of_rule).order_by("episode__start_ms", "episode_id"):
        by_group[word.group_id].append((word, view(word.episode)))
    silent = [pair for pairs in by_group.values() for pair in pairs if pair[0].level == Level.NOTHING]
    covers = Covers.of(receiver.organisation_id, configuration, [each for _, each in silent], now_ms)
    positions = judged_positions(word.episode.rule.app_id for word, _ in silent)
    escalated = [pair for pair in silent if pair[0].not_before_ms]
    around = Surroundings(receiver, configuration, covers, positions, now_ms, _taken(escalated, now_ms))
    decisions = {key: [(word, each, _decide(around, word, each)) for word, each in by_group[key]] for key in by_group}
    _write_reasons([each for decided in decisions.values() for each in decided])
    opened = [pair for pairs in by_group.values() for pair in pairs if _is_told_open(*pair)]
    quiet = _quiet(configuration, opened, now_ms)
    return [_draft(group, _waits(group, receiver), decisions[group.pk], quiet, now_ms) for group in free]


@dataclass(frozen=True, slots=True)
class Covers:
    """What covers each episode that was never told, by its id: silences and windows, and inhibitors."""

    mutes: Mapping[int, Sequence[Cover]]
    inhibitors: Mapping[int, Sequence[Cover]]

    @classmethod
    def of(
        cls, organisation: int, configuration: Configuration, episodes: Sequence[EpisodeView], now_ms: int
    ) -> "Covers":
        """Work out the covers of these episodes."""
        first_ms = min((each.start_ms for each in episodes), default=now_ms)
        sources = _sources(organisation, first_ms) if configuration.inhibitions and episodes else []
        mutes = mutes_of(configuration, episodes, from_ms=first_ms, to_ms=now_ms)
        return cls(mutes, inhibitors(configuration.inhibitions, episodes, sources))


def mutes_of(
    configuration: Configuration, episodes: Sequence[EpisodeView], *, from_ms: int, to_ms: int
) -> Mapping[int, Sequence[Cover]]:
    """Return what mutes each episode in [from_ms, to_ms]: silences, windows, the gaps of its rule's schedule."""
    mutes: dict[int, list[Cover]] = {each.id: [] for each in episodes}
    labels = [each.labels for each in episodes]
    for silence in configuration.silences:
        _extend(mutes, episodes, select(silence.matchers, labels), [silence.cover])
    for timing in configuration.timings:
        _extend(mutes, episodes, select(timing.matchers, labels), windows(timing, from_ms=from_ms, to_ms=to_ms))
    for schedule in {each.schedule for each in episodes if each.schedule is not None}:
        chosen = np.array([each.schedule == schedule for each in episodes])
        _extend(mutes, episodes, chosen, schedule.gaps(from_ms=from_ms, to_ms=to_ms))
    return mutes


def _quiet(
    configuration: Configuration, pairs: Sequence[tuple[LastWord, EpisodeView]], now_ms: int
) -> Mapping[int, int]:
    """Return until when those of the episodes are not said again that are acknowledged or muted now, by their id."""
    quiet = dict(_taken(pairs, now_ms))
    mutes = mutes_of(configuration, [each for _, each in pairs], from_ms=now_ms, to_ms=now_ms)
    for number, covers in mutes.items():
        if cover := cover_at(covers, now_ms):
            end_ms = now_ms + limits.WINDOWS_AHEAD_MS if cover.to_ms is None else cover.to_ms
            quiet[number] = max(quiet.get(number, 0), end_ms)
    return quiet


def _extend(
    mutes: dict[int, list[Cover]], episodes: Sequence[EpisodeView], chosen: BOOL, covers: Sequence[Cover]
) -> None:
    for episode, is_chosen in zip(episodes, chosen, strict=True):
        if is_chosen:
            mutes[episode.id] += covers


def _sources(organisation: int, first_ms: int) -> list[EpisodeView]:
    """Return the episodes that may inhibit those that began at ``first_ms`` or later."""
    recent = Q(end_ms=None) | Q(end_ms__gte=first_ms - limits.INHIBITION_LINGER_MS)
    real = Episode.objects.filter(recent, status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED))
    return [
        view(each)
        for each in real.filter(rule__app__organisation=organisation).select_related("rule__app", "rule__group")
    ]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all decisions of one flush share: the receiver, its organisation's settings, and how far apps are judged.

    ``taken`` says until when episodes are acknowledged that may escalate to the receiver, by their id.
    """

    receiver: Receiver
    configuration: Configuration
    covers: Covers
    positions: Mapping[int, int]
    now_ms: int
    taken: Mapping[int, int]


def _draft(
    group: NotificationGroup, waits: Waits, decided: Sequence[Decided], quiet: Mapping[int, int], now_ms: int
) -> Draft:
    lines = [Line(word, each, decision) for word, each, decision in decided if decision.kind is not None]
    state = GroupState(group.last_flush_ms, group.blocked_until_ms)
    if lines:
        told_ms = due_ms(state, waits, [line.view for line in lines], now_ms)
        return Draft(group, lines) if told_ms <= now_ms else Draft(group, look_ms=told_ms)
    look_ms = next_look_ms(decision for _, _, decision in decided)
    opened = [(word, each) for word, each, _ in decided if _is_told_open(word, each)]
    at_ms = repeat_ms(state, waits, [quiet.get(each.id, 0) for _, each in opened])
    if at_ms is None or at_ms > now_ms:
        return Draft(group, look_ms=next_look_ms((), look_ms, at_ms))
    return Draft(group, [Line(word, each, _AGAIN) for word, each in opened if each.id not in quiet])


def _decide(around: Surroundings, word: LastWord, episode: EpisodeView) -> Decision:
    last = words.LastWord(Level(word.level), word.is_doubtful)
    is_known = last.level is not Level.NOTHING
    about = Circumstances(
        now_ms=around.now_ms,
        judged_ms=around.positions.get(word.episode.rule.app_id, around.now_ms),
        is_routed=is_known or is_routed(around.receiver, word, around.configuration),
        mutes=around.covers.mutes.get(episode.id, ()),
        inhibitors=around.covers.inhibitors.get(episode.id, ()),
        not_before_ms=word.not_before_ms,
        taken_until_ms=around.taken.get(episode.id, 0),
    )
    return decide(last, episode, about)


def is_routed(receiver: Receiver, word: LastWord, configuration: Configuration) -> bool:
    """Whether today's rule and policies lead from the episode to the receiver."""
    is_own = (receiver.kind, receiver.target) in own_addresses(word.episode)
    own = frozenset({receiver.pk}) if is_own else frozenset()
    routes = routes_of(word.episode, configuration, own)
    return any(receiver.pk in route.receivers for route in routes)


def _is_told_open(word: LastWord, episode: EpisodeView) -> bool:
    return word.level == Level.OPEN and episode.level is Level.OPEN


def _taken(pairs: Sequence[tuple[LastWord, EpisodeView]], now_ms: int) -> Mapping[int, int]:
    """Return until when those of the episodes are acknowledged that somebody has taken, by their id."""
    rows = Acknowledgement.objects.filter(episode__in=[each.id for _, each in pairs], until_ms__gt=now_ms)
    return dict(rows.values_list("episode", "until_ms"))


def _write_reasons(decisions: Sequence[Decided]) -> None:
    """Write why an episode is told or not, where that has changed."""
    changed = [word for word, _, decision in decisions if word.reason != decision.reason]
    reasons = {word.pk: decision.reason for word, _, decision in decisions}
    for word in changed:
        word.reason = reasons[word.pk][:200]
    LastWord.objects.bulk_update(changed, ["reason"], batch_size=500)


def _groups_itself(receiver: Receiver) -> bool:
    """Whether the receiver groups, repeats and limits alerts by its own settings, so that it hears of each at once."""
    return receiver.kind == ALERTMANAGER


def _waits(group: NotificationGroup, receiver: Receiver) -> Waits:
    if _groups_itself(receiver):
        return AT_ONCE
    policy = group.policy
    return Waits() if policy is None else Waits(policy.wait_ms, policy.interval_ms, policy.repeat_ms)


def _digest_from_ms(receiver: Receiver, now_ms: int) -> int:
    """Return when the receiver may get a digest again: a group interval after its last one."""
    last = Notification.objects.filter(key=_digest_key(receiver, receiver.digests), created_ms__lte=now_ms)
    return max(last.values_list("created_ms", flat=True), default=-limits.GROUP_INTERVAL_MS) + limits.GROUP_INTERVAL_MS


def _digest_key(receiver: Receiver, n: int) -> str:
    return f"{receiver.pk}.digest.{n}"
