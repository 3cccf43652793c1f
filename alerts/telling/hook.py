"""Marks who may have to hear of episodes that changed, in the transaction that changed them.

1. Each episode is routed: the receivers of its rule and those of the policies that match.
2. Each receiver gets a row for the episode, in the group that its route names. A receiver on two routes has one row.
   One to which only escalation leads has it with the time from which on it may hear of the episode.
3. The groups of all rows of these episodes, old and new, are to be looked at now. If one of the episodes may inhibit
   others, so are the groups of all that was not told yet.

A flush locks groups in the order of their ids, then writes rows. So all groups are locked here, in that order, before a
row is moved; ``mark_organisation`` begins with all that the organisation has. Nothing is sent or decided here. Enter by
``mark`` (episodes changed) and ``mark_organisation`` (its settings did).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from alerts.models import DEFAULT_KIND, Aspect, Episode, EpisodeStatus, Rule
from alerts.models.telling import LastWord, NotificationGroup, Receiver
from alerts.notify.registry import kind_of
from alerts.telling import confirmations, limits
from alerts.telling.configuration import Configuration, read_configuration, view
from alerts.telling.decide.episodes import Level
from alerts.telling.decide.matchers import select
from alerts.telling.decide.routing import Route, routes
from spm.accounts.models import Membership

Address = tuple[str, str]  # kind and target
_BATCH_ROWS = 500  # of one statement: databases bound its parameters


@dataclass(frozen=True, slots=True)
class _Membership:
    """A receiver's group for an episode."""

    receiver: int
    episode: int
    policy: int | None
    labels: tuple[tuple[str, str], ...]
    not_before_ms: int = 0  # 0: no escalation

    @property
    def group_key(self) -> str:
        """The name of the group among those of the receiver."""
        text = json.dumps([self.policy, self.labels], ensure_ascii=False)
        return blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class _Routed:
    """Some episodes with their rows to write, by receiver and episode, and the groups of those, by receiver and key."""

    episodes: Sequence[Episode]
    memberships: Mapping[tuple[int, int], _Membership]
    groups: Mapping[tuple[int, str], int]


def mark(episode_ids: Sequence[int], *, now_ms: int) -> None:
    """Note that these episodes were created or changed. Must run in the transaction of the change."""
    rows = list[Episode]()
    for first in range(0, len(episode_ids), _BATCH_ROWS):
        episodes = Episode.objects.filter(pk__in=episode_ids[first : first + _BATCH_ROWS])
        rows += episodes.select_related("rule__app", "rule__created_by", "rule__group")
    mark_rows(rows, now_ms=now_ms)


def rules_with_routing(rules: Iterable[int]) -> dict[int, Rule]:
    """Return rules with all that routing reads of them, for ``mark_rows``."""
    return Rule.objects.select_related("app", "created_by", "group").in_bulk(list(rules))


def mark_rows(episodes: Iterable[Episode], *, now_ms: int) -> None:
    """As ``mark``, of rows as they were written, each with its rule of ``rules_with_routing``."""
    assert transaction.get_connection().in_atomic_block, "BUG: episodes marked outside a transaction"
    by_organisation: dict[int, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes, key=lambda each: each.pk):
        by_organisation[episode.rule.app.organisation_id].append(episode)
    routed, groups = list[_Routed](), set[int]()
    for organisation, rows in by_organisation.items():
        configuration = read_configuration(organisation, now_ms)
        if _may_inhibit(rows, configuration):
            groups |= _untold_groups(organisation, now_ms)
        for first in range(0, len(rows), _BATCH_ROWS):
            routed.append(_route(organisation, rows[first : first + _BATCH_ROWS], configuration, now_ms))
    groups |= {group for each in routed for group in each.groups.values()}
    for each in routed:
        words = LastWord.objects.filter(episode__in=[episode.pk for episode in each.episodes])
        groups |= set(words.values_list("group", flat=True).distinct())
    _look_at(groups, now_ms)
    for each in routed:
        _write_words(each.memberships, each.groups)


@transaction.atomic
def mark_organisation(organisation: int, *, now_ms: int) -> None:
    """Note that policies, silences or other settings changed: open episodes are routed anew, all groups looked at."""
    _look_at(NotificationGroup.objects.filter(receiver__organisation=organisation).values_list("pk", flat=True), now_ms)
    opened = Episode.objects.filter(rule__app__organisation=organisation, status=EpisodeStatus.OPEN)
    mark(list(opened.order_by("pk").values_list("pk", flat=True)), now_ms=now_ms)


def routes_of(episode: Episode, configuration: Configuration, own: frozenset[int]) -> list[Route]:
    """Return the routes of an episode; ``own`` are the receivers that its rule names."""
    policies = () if episode.aspect == Aspect.ERROR else configuration.policies
    return routes(policies, own, rule=episode.rule_id, labels=view(episode).labels)


def own_addresses(episode: Episode) -> frozenset[Address]:
    """Return kind and target of the receivers that the rule names. Its owner hears that a rule cannot be judged."""
    rule = episode.rule
    if episode.aspect == Aspect.ERROR:
        texts = [rule.created_by.email] if rule.created_by is not None and _is_member(rule) else []
    else:
        texts = rule.receivers
    return frozenset((kind_of(text) or DEFAULT_KIND, text) for text in texts)


def _is_member(rule: Rule) -> bool:
    """Whether the rule's author can get mail and still belongs to its organisation."""
    author = rule.created_by
    if author is None or not author.email:
        return False
    return Membership.objects.filter(user=author, organisation=rule.app.organisation_id).exists()


def write_receivers(organisation: int, addresses: Iterable[Address], *, now_ms: int) -> None:
    """Write receivers that are new, with a full budget. A stranger's mail address is asked whether it wants mail."""
    addresses = sorted(addresses)
    members = _member_addresses(organisation, [target for kind, target in addresses if kind == DEFAULT_KIND])
    rows = []
    for kind, target in addresses:
        is_member = kind != DEFAULT_KIND or target.casefold() in members
        may_send = is_member or not settings.SPM_CONFIRM_RECEIVERS or not kind_of(target)
        row = Receiver(organisation_id=organisation, kind=kind, target=target, created_ms=now_ms, is_member=is_member)
        row.tokens, row.tokens_ms = limits.RECEIVER_TOKENS_MAX, now_ms
        row.confirmed_ms = now_ms if may_send else None
        rows.append(row)
    Receiver.objects.bulk_create(rows, ignore_conflicts=True)
    strangers = [target for (_, target), row in zip(addresses, rows, strict=True) if row.confirmed_ms is None]
    new = Receiver.objects.filter(organisation=organisation, kind=DEFAULT_KIND, target__in=strangers, confirmed_ms=None)
    confirmations.ask(list(new.select_related("organisation")), now_ms)


def _member_addresses(organisation: int, targets: Iterable[str]) -> frozenset[str]:
    """Return which of these are addresses of members, in the form in which they are compared."""
    wanted = {target.casefold() for target in targets}
    if not wanted:
        return frozenset()
    members = Membership.objects.filter(organisation=organisation).values_list("user__email", flat=True)
    return frozenset({address.casefold() for address in members} & wanted)


def _route(organisation: int, episodes: Sequence[Episode], configuration: Configuration, now_ms: int) -> _Routed:
    receivers = _receivers(organisation, episodes, now_ms)
    new = [each for each in episodes if each.status in (EpisodeStatus.OPEN, EpisodeStatus.ENDED)]
    memberships: dict[tuple[int, int], _Membership] = {}
    for episode in new:
        own = frozenset(receivers[each] for each in own_addresses(episode))
        for route in routes_of(episode, configuration, own):
            for receiver in sorted(route.receivers):
                not_before_ms = episode.created_ms + route.after_ms if route.after_ms else 0
                each = _Membership(receiver, episode.pk, route.policy, route.group, not_before_ms)
                memberships.setdefault((receiver, episode.pk), each)
    return _Routed(episodes, memberships, _groups(memberships.values()))


def _may_inhibit(episodes: Iterable[Episode], configuration: Configuration) -> bool:
    labels = [view(each).labels for each in episodes] if configuration.inhibitions else []
    return any(select(each.source, labels).any() for each in configuration.inhibitions)


def _untold_groups(organisation: int, now_ms: int) -> set[int]:
    """Return the groups of episodes that their receivers have not heard of, and may have to hear of yet."""
    words = LastWord.objects.filter(receiver__organisation=organisation, level=Level.NOTHING)
    recent = Q(episode__end_ms=None) | Q(episode__changed_ms__gt=now_ms - limits.WINDOWS_SPAN_MS)
    real = words.filter(recent, episode__status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED))
    return set(real.values_list("group", flat=True).distinct())


def _receivers(organisation: int, episodes: Iterable[Episode], now_ms: int) -> Mapping[Address, int]:
    """Return the ids of all receivers that these rules name; those that are new are written."""
    wanted = {each for episode in episodes for each in own_addresses(episode)}
    known = _known_receivers(organisation, wanted)
    if missing := sorted(wanted - set(known)):
        write_receivers(organisation, missing, now_ms=now_ms)
        known = _known_receivers(organisation, wanted)
    return known


def _known_receivers(organisation: int, wanted: Iterable[Address]) -> dict[Address, int]:
    rows = Receiver.objects.filter(organisation=organisation, target__in=[target for _, target in wanted])
    return {(row.kind, row.target): row.pk for row in rows}


def _groups(memberships: Iterable[_Membership]) -> Mapping[tuple[int, str], int]:
    """Return the ids of the groups by receiver and key; those that are new are written."""
    wanted = {(each.receiver, each.group_key): each for each in memberships}
    known = _known_groups(wanted)
    if missing := sorted(wanted.keys() - known.keys()):
        NotificationGroup.objects.bulk_create(
            [
                NotificationGroup(
                    receiver_id=receiver,
                    key=key,
                    policy_id=wanted[receiver, key].policy,
                    labels=dict(wanted[receiver, key].labels),
                )
                for receiver, key in missing
            ],
            ignore_conflicts=True,
        )
        known = _known_groups(wanted)
    return known


def _known_groups(wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    pairs = list(wanted)
    rows = NotificationGroup.objects.filter(receiver__in={receiver for receiver, _ in pairs})
    triples = rows.filter(key__in={key for _, key in pairs}).values_list("receiver", "key", "pk")
    return {(receiver, key): pk for receiver, key, pk in triples}


def _write_words(memberships: Mapping[tuple[int, int], _Membership], groups: Mapping[tuple[int, str], int]) -> None:
    """Write a row for each receiver and episode; one that was never told moves to the group of today's route."""
    rows = {
        pair: LastWord(
            receiver_id=each.receiver,
            episode_id=each.episode,
            group_id=groups[each.receiver, each.group_key],
            not_before_ms=each.not_before_ms,
        )
        for pair, each in memberships.items()
    }
    known = list(LastWord.objects.filter(episode__in={episode for _, episode in rows}))
    new = rows.keys() - {(word.receiver_id, word.episode_id) for word in known}
    LastWord.objects.bulk_create([rows[pair] for pair in sorted(new)], ignore_conflicts=True)
    moved = [word for word in known if word.level == Level.NOTHING and _has_moved(word, rows)]
    for word in moved:
        row = rows[word.receiver_id, word.episode_id]
        word.group_id, word.not_before_ms = row.group_id, row.not_before_ms
    LastWord.objects.bulk_update(moved, ["group", "not_before_ms"], batch_size=500)


def _has_moved(word: LastWord, rows: Mapping[tuple[int, int], LastWord]) -> bool:
    row = rows.get((word.receiver_id, word.episode_id))
    return row is not None and (row.group_id, row.not_before_ms) != (word.group_id, word.not_before_ms)


def _look_at(groups: Iterable[int], now_ms: int) -> None:
    """Have the groups looked at now. They are locked in the order of their ids, as a flush locks them."""
    ordered = sorted(groups)
    for first in range(0, len(ordered), _BATCH_ROWS):
        rows = NotificationGroup.objects.filter(pk__in=ordered[first : first + _BATCH_ROWS])
        chosen = list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
        NotificationGroup.objects.filter(pk__in=chosen).update(next_look_ms=now_ms)
