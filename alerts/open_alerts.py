"""Lists the open alerts of an organisation, newest first, with what each of their receivers was told. Reads only.

Matchers see labels as policies and silences do. Templates make those, so no database can search them: a page looks at a
bounded number of alerts, and may hold fewer than it could. Enter by ``open_alerts``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from alerts.models import Episode, EpisodeStatus
from alerts.models.telling import Acknowledgement, LastWord
from alerts.telling import limits
from alerts.telling.alert_facts import matched_labels
from alerts.telling.decide.matchers import read_matchers, select

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An open episode, its labels as policies see them, who has taken it, and the last words of its receivers."""

    episode: Episode
    labels: Mapping[str, str]
    taken: Acknowledgement | None
    words: Sequence[LastWord]


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which open alerts to list; None and an empty text do not choose."""

    app: int | None = None
    rule: int | None = None
    severity: str | None = None
    aspect: str | None = None
    acknowledged: bool | None = None
    matchers: str = ""

    def select(self, organisation: int, now_ms: int) -> QuerySet[Episode]:
        """Select the open episodes of an organisation that the database can choose."""
        rows = Episode.objects.filter(rule__app__organisation=organisation, rule__app__going=None)
        columns = {"rule__app": self.app, "rule": self.rule, "severity": self.severity, "aspect": self.aspect}
        rows = rows.filter(
            status=EpisodeStatus.OPEN, **{name: each for name, each in columns.items() if each is not None}
        )
        taken = Acknowledgement.objects.filter(until_ms__gt=now_ms).values("episode")
        if self.acknowledged is None:
            return rows
        return rows.filter(pk__in=taken) if self.acknowledged else rows.exclude(pk__in=taken)


def open_alerts(
    organisation: int, chosen_by: AlertFilter, *, cursor: int | None, limit: int, now_ms: int
) -> tuple[list[OpenAlert], int | None]:
    """Return the newest alerts older than the cursor, and the cursor of those that follow; None at the end."""
    wanted = read_matchers(chosen_by.matchers) if chosen_by.matchers.strip() else ()
    episodes = chosen_by.select(organisation, now_ms).select_related("rule__app", "rule__group")
    rows, size = episodes.order_by("-pk"), _CHUNK if wanted else limit + 1
    chosen: list[tuple[Episode, Mapping[str, str]]] = []
    for _ in range(0, limits.ALERTS_SCANNED_MAX, _CHUNK):
        chunk = list((rows if cursor is None else rows.filter(pk__lt=cursor))[:size])
        labels = [matched_labels(each) for each in chunk]
        pairs = zip(chunk, labels, select(wanted, labels), strict=True)
        chosen += [(episode, its_labels) for episode, its_labels, is_chosen in pairs if is_chosen]
        if len(chosen) > limit:
            return _with_words(chosen[:limit], now_ms), chosen[limit - 1][0].pk
        if len(chunk) < size:
            return _with_words(chosen, now_ms), None
        cursor = chunk[-1].pk
    return _with_words(chosen, now_ms), cursor


def _with_words(chosen: Sequence[tuple[Episode, Mapping[str, str]]], now_ms: int) -> list[OpenAlert]:
    numbers = [episode.pk for episode, _ in chosen]
    taken = Acknowledgement.objects.filter(episode__in=numbers, until_ms__gt=now_ms).select_related("by", "receiver")
    by_episode = {row.episode_id: row for row in taken}
    words: dict[int, list[LastWord]] = {number: [] for number in numbers}
    for word in LastWord.objects.filter(episode__in=numbers).select_related("receiver", "group").order_by("pk"):
        words[word.episode_id].append(word)
    return [OpenAlert(each, labels, by_episode.get(each.pk), words[each.pk]) for each, labels in chosen]
