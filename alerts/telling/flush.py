"""Writes the notifications that are due: one transaction for one receiver.

1. Lock the receiver, then its groups that are to be looked at, in the order of their ids.
2. A group with an open notification is left alone: what happens meanwhile is told by the next one, as a difference.
3. For each other group, decide for each of its episodes which line it gets (``decide``), and when to look again.
4. Groups that are due are distributed over notifications within the budgets (``pack``).
5. Each notification is frozen: its number, its key, its body and what its receiver will believe once it arrived.

A crash before the commit changes nothing; after it the notification is written. Enter by ``flush_due``.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Q

from alerts.models import Episode, EpisodeStatus
from alerts.models.telling import Acknowledgement, LastWord, Notification, NotificationGroup, Receiver
from alerts.telling import body, limits
from alerts.telling.configuration import Configuration, judged_positions, read_configuration, view
from alerts.telling.decide import episodes as words
from alerts.telling.decide.budget import TokenBucket, pack
from alerts.telling.decide.covers import Cover
from alerts.telling.decide.decision import Circumstances, decide
from alerts.telling.decide.episodes import Decision, EpisodeView, Level, LineKind
from alerts.telling.decide.inhibition import inhibitors
from alerts.telling.decide.matchers import select
from alerts.telling.decide.timing import GroupState, Waits, due_ms, next_look_ms, repeat_ms
from alerts.telling.decide.windows import windows
from alerts.telling.hook import own_addresses, routes_of
from spm.arrays import BOOL

log = logging.getLogger("spm.alerts")


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
    due = NotificationGroup.objects.filter(next_look_ms__lte=now_ms).order_by("next_look_ms", "pk")
    receivers = dict.fromkeys(due.values_list("receiver", flat=True)[: limits.ROUND_MAX])
    written = 0
    for receiver in receivers:
        try:
            written += flush_receiver(receiver, now_ms)
        except Exception:  # a loop's top: the other receivers must be told, and this one is due again
            log.exception("the notifications of receiver %d could not be written", receiver)
    return written


@transaction.atomic
def flush_receiver(receiver_id: int, now_ms: int) -> int:
    """Write the notifications that are due for one receiver; returns how many."""
    receiver = Receiver.objects.select_for_update(no_key=True).get(pk=receiver_id)
    rows = NotificationGroup.objects.filter(receiver=receiver, next_look_ms__lte=now_ms).order_by("pk")
    if receiver.confirmed_ms is None:  # its confirmation has all groups looked at
        rows.update(next_look_ms=None)
        return 0
    groups = list(rows.select_for_update(no_key=True)[: limits.ROUND_MAX])
    drafts = [draft for draft in _drafts(receiver, groups, now_ms) if draft is not None]
    due = [draft for draft in drafts if draft.lines]
    bucket = _bucket(receiver).at(now_ms)
    packing = pack(due, bucket)
    for each in packing.notifications:
        freeze(receiver, each, now_ms)
    for draft in drafts:
        if not draft.lines:
            NotificationGroup.objects.filter(pk=draft.group.pk).update(next_look_ms=draft.look_ms)
        elif packing.wait_until_ms is not None:
            NotificationGroup.objects.filter(pk=draft.group.pk).update(next_look_ms=packing.wait_until_ms)
    bucket = bucket.spend(len(packing.notifications))
    Receiver.objects.filter(pk=receiver.pk).update(tokens=bucket.tokens, tokens_ms=bucket.at_ms)
    return len(packing.notifications)


def freeze(receiver: Receiver, drafts: Sequence[Draft], now_ms: int) -> Notification:
    """Write one notification with its key and its body, and make it the open one of its groups."""
    groups = [draft.group for draft in drafts]
    if len(groups) == 1:
        n = groups[0].n + 1
        key = f"{receiver.pk}.{groups[0].pk}.{n}"
    else:
        n = receiver.digests + 1
        key = f"{receiver.pk}.digest.{n}"
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
    for group in groups:
        NotificationGroup.objects.filter(pk=group.pk).update(
            n=group.n + 1,
            first_key=group.first_key or key,
            open=notification,
            last_flush_ms=now_ms,
            next_look_ms=None,
        )
    reopened = [line.view.id for line in lines if line.kind is LineKind.REOPENED]
    Acknowledgement.objects.filter(episode__in=reopened).delete()
    return notification


def is_open(group: NotificationGroup) -> bool:
    """Whether a notification of the group is neither delivered nor given up."""
    return group.open_id is not None


def _drafts(receiver: Receiver, groups: Sequence[NotificationGroup], now_ms: int) -> list[Draft | None]:
    """Return what is due for each group; None for one that another notification will look at when it is done."""
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
    around = Surroundings(receiver, configuration, covers, positions, now_ms)
    return [_draft(around, group, by_group[group.pk]) for group in free]


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
        mutes: dict[int, list[Cover]] = {each.id: [] for each in episodes}
        labels = [each.labels for each in episodes]
        first_ms = min((each.start_ms for each in episodes), default=now_ms)
        for silence in configuration.silences:
            _extend(mutes, episodes, select(silence.matchers, labels), [silence.cover])
        for timing in configuration.timings:
            spans = windows(timing, from_ms=first_ms, to_ms=now_ms)
            _extend(mutes, episodes, select(timing.matchers, labels), spans)
        sources = _sources(organisation, first_ms) if configuration.inhibitions and episodes else []
        return cls(mutes, inhibitors(configuration.inhibitions, episodes, sources))


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
    """What all decisions of one flush share: the receiver, its organisation's settings, and how far apps are judged."""

    receiver: Receiver
    configuration: Configuration
    covers: Covers
    positions: Mapping[int, int]
    now_ms: int


def _draft(around: Surroundings, group: NotificationGroup, pairs: Sequence[tuple[LastWord, EpisodeView]]) -> Draft:
    now_ms = around.now_ms
    decisions = [(word, each, _decide(around, word, each)) for word, each in pairs]
    _write_reasons(decisions)
    lines = [Line(word, each, decision) for word, each, decision in decisions if decision.kind is not None]
    waits, state = _waits(group), GroupState(group.last_flush_ms, group.blocked_until_ms)
    look_ms = next_look_ms(decision for _, _, decision in decisions)
    if not lines:
        repeats = _repeats(pairs, now_ms)
        at_ms = repeat_ms(state, waits) if repeats else None
        if at_ms is not None and at_ms <= now_ms:
            return Draft(group, repeats)
        return Draft(group, look_ms=next_look_ms((), look_ms, at_ms))
    at_ms = due_ms(state, waits, [line.view for line in lines])
    return Draft(group, lines) if at_ms <= now_ms else Draft(group, look_ms=at_ms)


def _decide(around: Surroundings, word: LastWord, episode: EpisodeView) -> Decision:
    last = words.LastWord(Level(word.level), word.is_doubtful)
    is_known = last.level is not Level.NOTHING
    about = Circumstances(
        now_ms=around.now_ms,
        judged_ms=around.positions.get(word.episode.rule.app_id, around.now_ms),
        is_routed=is_known or is_routed(around.receiver, word, around.configuration),
        mutes=around.covers.mutes.get(episode.id, ()),
        inhibitors=around.covers.inhibitors.get(episode.id, ()),
    )
    return decide(last, episode, about)


def is_routed(receiver: Receiver, word: LastWord, configuration: Configuration) -> bool:
    """Whether today's rule and policies lead from the episode to the receiver."""
    is_own = (receiver.kind, receiver.target) in own_addresses(word.episode)
    own = frozenset({receiver.pk}) if is_own else frozenset()
    routes = routes_of(word.episode, configuration, own)
    return any(receiver.pk in route.receivers for route in routes)


def _repeats(pairs: Sequence[tuple[LastWord, EpisodeView]], now_ms: int) -> list[Line]:
    """Return a line for each open episode that was told and that nobody has acknowledged."""
    opened = [(word, each) for word, each in pairs if word.level == Level.OPEN and each.level is Level.OPEN]
    rows = Acknowledgement.objects.filter(episode__in=[each.id for _, each in opened], until_ms__gt=now_ms)
    taken = set(rows.values_list("episode", flat=True))
    again = Decision(LineKind.REPEAT, "it goes on, and nobody has acknowledged it")
    return [Line(word, each, again) for word, each in opened if each.id not in taken]


def _write_reasons(decisions: Sequence[tuple[LastWord, EpisodeView, Decision]]) -> None:
    """Write why an episode is told or not, where that has changed."""
    changed = [word for word, _, decision in decisions if word.reason != decision.reason]
    reasons = {word.pk: decision.reason for word, _, decision in decisions}
    for word in changed:
        word.reason = reasons[word.pk][:200]
    LastWord.objects.bulk_update(changed, ["reason"], batch_size=500)


def _waits(group: NotificationGroup) -> Waits:
    policy = group.policy
    return Waits() if policy is None else Waits(policy.wait_ms, policy.interval_ms, policy.repeat_ms)


def _bucket(receiver: Receiver) -> TokenBucket:
    return TokenBucket(receiver.tokens, receiver.tokens_ms)
