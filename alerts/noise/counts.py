"""Counts the noise of an organisation over a time range: a few statements, however many rules there are.

1. Alerts by rule, and those that began soon after the last alert of their series had ended (flaps).
2. Delivered notifications by rule: each counts once for every rule that it names.
3. Alerts that somebody was told of and nobody acted on: nobody acknowledged them, silenced them while they went on, or
   ended them or changed their rule then.

That a rule cannot be judged is no noise of its alerts, and is left out. Enter by ``count_noise``
or ``count_last_week``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from django.db.models import BigIntegerField, Count, Exists, F, OuterRef, QuerySet, Value, Window
from django.db.models.functions import Coalesce, Lag

from alerts.models import Aspect, Delivery, EndReason, Episode, EpisodeStatus, Rule, RuleVersionRow
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.telling import Acknowledgement, LastWord, Notification, Silence
from alerts.noise import limits
from alerts.telling.configuration import view
from alerts.telling.decide.episodes import Level
from alerts.telling.decide.matchers import read_matchers, select

_BY_PEOPLE = (EndReason.EDITED, EndReason.SWITCHED_OFF, EndReason.DELETED, EndReason.PERSON)


def count_last_week(organisation: int, now_ms: int) -> tuple[NoiseReport, list[NoisyRule]]:
    """Count the noise of the last seven days."""
    return count_noise(organisation, now_ms - limits.WEEK_MS, now_ms, now_ms=now_ms)


def count_noise(organisation: int, from_ms: int, to_ms: int, *, now_ms: int) -> tuple[NoiseReport, list[NoisyRule]]:
    """Return the report of [from_ms, to_ms) and its noisiest rules, noisiest first; neither is saved."""
    episodes = _episodes(organisation).filter(start_ms__gte=from_ms, start_ms__lt=to_ms)
    alerts = Counter(dict(episodes.order_by().values_list("rule").annotate(count=Count("pk"))))
    flaps = Counter(_flaps(episodes).iterator())
    unattended = _unattended(organisation, episodes, to_ms)
    sent = Notification.objects.filter(organisation=organisation, state=Delivery.SENT)
    by_rule, total, is_cut = _count_notifications(sent.filter(created_ms__gte=from_ms, created_ms__lt=to_ms))
    report = NoiseReport(
        organisation_id=organisation, from_ms=from_ms, to_ms=to_ms, made_ms=now_ms, rules=len(alerts),
        alerts=alerts.total(), notifications=total, unattended=unattended.total(), flaps=flaps.total(), is_cut=is_cut,
    )  # fmt: skip
    noisiest = {rule for each in (by_rule, alerts, unattended, flaps) for rule in _first(each)}
    rows = [
        NoisyRule(
            report=report, rule=rule, alerts=alerts[rule.pk], notifications=by_rule[rule.pk],
            unattended=unattended[rule.pk], flaps=flaps[rule.pk],
        )
        for rule in Rule.objects.filter(pk__in=noisiest).select_related("app__organisation")
    ]  # fmt: skip
    return report, sorted(rows, key=lambda row: (-row.notifications, -row.alerts, row.rule_id))


def _first(counts: Counter[int]) -> list[int]:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [rule for rule, count in ordered[: limits.RULES_SHOWN] if count]


def _episodes(organisation: int) -> QuerySet[Episode]:
    """Select what really fired, without rules that could not be judged."""
    real = Episode.objects.filter(rule__app__organisation=organisation).exclude(aspect=Aspect.ERROR)
    return real.exclude(status__in=(EpisodeStatus.VOID, EpisodeStatus.MERGED))


def _flaps(episodes: QuerySet[Episode]) -> QuerySet[Episode, int]:
    """Select the rules of the episodes that began soon after the one before had ended, one row for each."""
    series = [F("rule"), F("fingerprint"), F("aspect")]
    previous = Window(Lag("end_ms"), partition_by=series, order_by=[F("start_ms").asc(), F("pk").asc()])
    again = episodes.order_by().annotate(previous_ms=previous)
    return again.filter(previous_ms__gt=F("start_ms") - limits.FLAP_MS).values_list("rule", flat=True)


def _count_notifications(sent: QuerySet[Notification]) -> tuple[Counter[int], int, bool]:
    """Count notifications by rule and all together, and say whether there were more than are counted."""
    levels = sent.order_by("-created_ms", "-pk").values_list("levels", flat=True)
    named = [list(map(int, each)) for each in islice(levels.iterator(), limits.NOTIFICATIONS_MAX + 1)]
    is_cut = len(named) > limits.NOTIFICATIONS_MAX
    named = [each for each in named[: limits.NOTIFICATIONS_MAX] if each]
    numbers = dict.fromkeys(number for each in named for number in each)
    chosen = list(islice(numbers, limits.EPISODES_MAX))
    rules = _rules_of(chosen)
    of_each = [{rules[number] for number in each if number in rules} for each in named]
    by_rule = Counter(rule for each in of_each for rule in each)
    return by_rule, sum(map(bool, of_each)), is_cut or len(chosen) < len(numbers)


def _rules_of(episodes: Sequence[int]) -> dict[int, int]:
    """Return the rule of each episode that is an alert of it."""
    rules = dict[int, int]()
    for first in range(0, len(episodes), limits.BATCH_ROWS):
        some = episodes[first : first + limits.BATCH_ROWS]
        rows = Episode.objects.filter(pk__in=some).exclude(aspect=Aspect.ERROR)
        rules |= dict(rows.values_list("pk", "rule"))
    return rules


def _unattended(organisation: int, episodes: QuerySet[Episode], to_ms: int) -> Counter[int]:
    """Count by rule the alerts that somebody was told of and nobody acted on."""
    words = LastWord.objects.filter(episode=OuterRef("pk")).exclude(level=Level.NOTHING)
    last_ms = Coalesce("end_ms", Value(to_ms, output_field=BigIntegerField()))
    edited = RuleVersionRow.objects.filter(
        rule=OuterRef("rule"), from_ms__gt=OuterRef("start_ms"), from_ms__lte=OuterRef("last_ms")
    )
    alone = episodes.annotate(last_ms=last_ms).exclude(end_reason__in=_BY_PEOPLE)
    alone = alone.filter(Exists(words), ~Exists(Acknowledgement.objects.filter(episode=OuterRef("pk"))))
    alone = alone.filter(~Exists(edited))
    counts = Counter(dict(alone.order_by().values_list("rule").annotate(count=Count("pk"))))
    return counts - Counter(_silenced(organisation, alone)) if counts else counts


def _silenced(organisation: int, alone: QuerySet[Episode]) -> Iterator[int]:
    """Yield the rule of each of these episodes, the newest ones, that somebody silenced while it went on."""
    oldest = alone.order_by("start_ms").values_list("start_ms", flat=True).first()
    silences = list(Silence.objects.filter(organisation=organisation, created_ms__gte=oldest or 0))
    if not silences:
        return
    rows = alone.select_related("rule__app", "rule__group").order_by("-start_ms", "-pk")[: limits.SILENCED_MAX]
    newest = list(rows)
    labels = [view(each).labels for each in newest]
    silenced = set[int]()
    for silence in silences:
        chosen = select(read_matchers(silence.matchers), labels)
        for episode, is_chosen in zip(newest, chosen, strict=True):
            if is_chosen and episode.start_ms <= silence.created_ms <= episode.last_ms:  # type: ignore[attr-defined]
                silenced.add(episode.pk)
    yield from (episode.rule_id for episode in newest if episode.pk in silenced)
