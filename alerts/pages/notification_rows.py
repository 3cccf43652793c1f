"""Turns rows of telling into what the pages of notifications draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alerts.models import Episode, EpisodeStatus
from alerts.models.telling import Acknowledgement, Notification, Receiver, Silence
from alerts.notify.base import DeliveryFailed, RenderedMessage
from alerts.notify.registry import NOTIFIERS, shown
from alerts.notify.webhook import secret_of
from alerts.telling import limits
from alerts.telling.configuration import view
from alerts.telling.decide.matchers import read_matchers, select
from spm.errors import BadQuery

NOTIFICATIONS_SHOWN = 200
PREVIEW_SHOWN = 20


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A notification, and the message as its receiver sees it."""

    row: Notification
    rendered: RenderedMessage

    @property
    def shown(self) -> str:
        """The receiver, without what is secret of it."""
        return shown(self.row.receiver.kind, self.row.receiver.target)


@dataclass(frozen=True, slots=True)
class ReceiverRow:
    """A receiver, and whether so many notifications failed that it is only tried once an hour."""

    row: Receiver
    is_failing: bool

    @property
    def secret(self) -> str:
        """What the receiver verifies our signatures with; empty for a kind without."""
        return secret_of(self.row.pk) if self.row.kind == "webhook" else ""

    @property
    def shown(self) -> str:
        """The receiver, without what is secret of it."""
        return shown(self.row.kind, self.row.target)


@dataclass(frozen=True, slots=True)
class Preview:
    """The open alerts that matchers select, or why they are no matchers."""

    error: str = ""
    total: int = 0
    labels: Sequence[Mapping[str, str]] = ()

    @property
    def more(self) -> int:
        """The number of alerts that are not shown."""
        return self.total - len(self.labels)


def rows_of(organisation: int) -> list[NotificationRow]:
    """List the latest notifications of an organisation."""
    rows = Notification.objects.filter(organisation=organisation).select_related("receiver")
    return [row_of(row) for row in rows[:NOTIFICATIONS_SHOWN]]


def row_of(row: Notification) -> NotificationRow:
    """Present a notification as its notifier renders it, or say why it cannot be rendered."""
    kind = row.receiver.kind
    if kind not in NOTIFIERS:
        return NotificationRow(row, RenderedMessage(row.key, (), (), f"There is no notifier for {kind!r}."))
    try:
        return NotificationRow(row, NOTIFIERS[kind].render(row.key, row.full_body))
    except DeliveryFailed as failure:
        return NotificationRow(row, RenderedMessage(row.key, (), (), str(failure)))


def acknowledged_of(row: Notification, now_ms: int) -> list[Acknowledgement]:
    """List who has taken which episodes of the notification that are still open."""
    rows = Acknowledgement.objects.filter(episode__in=list(map(int, row.levels)), until_ms__gt=now_ms)
    return list(rows.filter(episode__status=EpisodeStatus.OPEN).select_related("by", "episode__rule").order_by("pk"))


def receivers_of(organisation: int) -> list[ReceiverRow]:
    """List the receivers of an organisation, failing ones first."""
    rows = Receiver.objects.filter(organisation=organisation).order_by("-dead_in_a_row", "kind", "target")
    return [ReceiverRow(row, row.dead_in_a_row >= limits.DEAD_IN_A_ROW_MAX) for row in rows[: limits.RECEIVERS_MAX]]


def silences_of(organisation: int, now_ms: int) -> list[tuple[Silence, bool]]:
    """List the silences that are in force or were lately, each with whether it is over."""
    rows = Silence.objects.filter(organisation=organisation, to_ms__gt=now_ms - limits.WINDOWS_SPAN_MS)
    return [(row, row.to_ms <= now_ms) for row in rows.select_related("created_by")[: limits.SILENCES_MAX]]


def preview_of(organisation: int, text: str) -> Preview:
    """Say which open alerts the matchers select now."""
    try:
        matchers = read_matchers(text)
    except BadQuery as error:
        return Preview(error=str(error) if text.strip() else 'Write matchers, such as host="web-1".')
    rows = Episode.objects.filter(rule__app__organisation=organisation, status=EpisodeStatus.OPEN)
    labels = [view(each).labels for each in rows.select_related("rule__app", "rule__group").order_by("pk")]
    chosen = [each for each, is_chosen in zip(labels, select(matchers, labels), strict=True) if is_chosen]
    return Preview(total=len(chosen), labels=chosen[:PREVIEW_SHOWN])
