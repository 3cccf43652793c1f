"""Reads metrics of the whole site, which no single process counts: balances by app, watermarks, alerts, runs, messages.

``read_figures`` reads them from the store and the database. ``recent_figures`` returns them to a scraper at most
``SITE_METRICS_AGE_S`` old. Celery beat sends them to the product's own app (``tasks``). Balances here rest on
watermarks alone, which costs one scan of a few rows per app: every sample above a watermark counts as ``unsettled``.
The page of the balance shows where such samples are.
"""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db.models import Count, Q

from alerts.models import Aspect, Delivery, Instance, Outbox
from alerts.models.telling import Notification
from ingest.accounting import dead_letter_review
from rollups.models import Run, RunState
from spm import limits
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.backup.schedule import newest_backup_ms
from spm.clock import SystemClock
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.ledger.balance import SampleCounts, summarize
from spm.telemetry import MetricValue

HELPS = {
    "spm_apps": "Number of apps; apps above a bound have no figures of their own",
    "spm_app_messages": "Messages accepted since the app began, by outcome",
    "spm_app_samples": "Samples accepted since the app began, by outcome",
    "spm_app_mark_lag_seconds": "Age of the oldest announcement of a live process without an outcome",
    "spm_app_marks_damaged": "Accepting processes whose counts and watermarks cannot be read: see fsck",
    "spm_app_dead_letters": f"Dead letters that wait for a decision, up to {limits.SITE_METRICS_DEAD_LETTERS_MAX}",
    "spm_app_sources": "Sources, by whether they report in time",
    "spm_alerts": "Alerts, by state",
    "spm_alerts_rules_failing": "Rules whose last evaluation failed",
    "spm_alerts_outbox_messages": "Notifications and account mails that are not sent, by state",
    "spm_runs_running": "Runs that are running",
    "spm_run_last_success_timestamp_seconds": "When a run of the kind last succeeded",
    "spm_run_last_duration_seconds": "How long the last successful run took",
    "spm_run_last_samples": "Samples that the last successful run compacted",
    "spm_backup_last_timestamp_seconds": "Up to when the newest scheduled backup has everything; 0 without one",
    "spm_standing_failures": "Apps whose figures could not be read now",
}


def read_figures(store: Backend, now_ms: int) -> list[MetricValue]:
    """Read all figures; an app that cannot be read is left out and counted as a failure."""
    readings = [*_alerts(), *_runs(), *_sources(now_ms), *_backups()]
    apps = list(App.objects.filter(going=None).order_by("pk").values_list("pk", flat=True))
    failures = 0
    for app in apps[: limits.SITE_METRICS_APPS_MAX]:
        try:
            readings += _balance(store, app, now_ms)
        except SpmError:
            failures += 1
    return [*readings, MetricValue("spm_apps", {}, len(apps)), MetricValue("spm_standing_failures", {}, failures)]


def _balance(store: Backend, app: int, now_ms: int) -> list[MetricValue]:
    summary, label = summarize(store, app, now_ms), {"app": str(app)}
    waiting = dead_letter_review.count_waiting(store, app, at_most=limits.SITE_METRICS_DEAD_LETTERS_MAX)
    return [
        *_by_outcome("spm_app_messages", label, summary.messages),
        *_by_outcome("spm_app_samples", label, summary.samples),
        MetricValue("spm_app_mark_lag_seconds", label, summary.lag_ms / 1000),
        MetricValue("spm_app_marks_damaged", label, summary.unread),
        MetricValue("spm_app_dead_letters", label, waiting),
    ]


def _by_outcome(name: str, label: dict[str, str], of: SampleCounts) -> Iterator[MetricValue]:
    counts = {"stored": of.stored, "late": of.late, "rejected": of.rejected, "dead": of.dead, "unsettled": of.queued}
    for outcome, count in counts.items():
        yield MetricValue(name, {**label, "outcome": outcome}, count)


def _sources(now_ms: int) -> Iterator[MetricValue]:
    long = Source.objects.filter(period_ms__gt=limits.SOURCE_OVERDUE_AFTER_MS // limits.SOURCE_OVERDUE_PERIODS)
    periods = list(long.order_by("period_ms").values_list("period_ms", flat=True).distinct())
    known = [period for period in periods[: limits.SITE_METRICS_PERIODS_MAX] if period]
    overdue, gone = (_silent_since(now_ms, known, which) for which in (0, 1))
    states = {
        "up": Count("pk", filter=~overdue),
        "late": Count("pk", filter=overdue & ~gone),
        "gone": Count("pk", filter=gone),
    }
    counted = Source.objects.filter(app__going=None).values("app").annotate(**states).order_by("app")
    for app, *counts in counted.values_list("app", *states)[: limits.SITE_METRICS_APPS_MAX]:
        for state, count in zip(states, counts, strict=True):
            yield MetricValue("spm_app_sources", {"app": str(app), "state": state}, count)


def _silent_since(now_ms: int, periods: list[int], which: int) -> Q:
    """Select sources that have been silent for longer than their period allows: 0 for overdue ones, 1 for gone ones."""

    def before(period_ms: int | None) -> datetime:
        return datetime.fromtimestamp((now_ms - sources.overdue_ages_ms(period_ms)[which]) / 1000, UTC)

    silent = Q(last_seen__lte=before(None)) & (Q(period_ms=None) | ~Q(period_ms__in=periods))
    for period_ms in periods:
        silent |= Q(period_ms=period_ms, last_seen__lte=before(period_ms))
    return silent


def _alerts() -> Iterator[MetricValue]:
    alerts = Instance.objects.exclude(aspect=Aspect.ERROR).order_by("phase").values_list("phase")
    for state, count in alerts.annotate(Count("pk")):
        yield MetricValue("spm_alerts", {"state": state}, count)
    failing = Instance.objects.filter(aspect=Aspect.ERROR, rule__app__going=None)
    yield MetricValue("spm_alerts_rules_failing", {}, failing.count())
    for state in (Delivery.WAITING, Delivery.DEAD):
        yield MetricValue("spm_alerts_outbox_messages", {"state": state.value}, _message_count(state))


def _message_count(state: Delivery) -> int:
    """Count the messages in this state: notifications of alerts, and mail about accounts."""
    return Notification.objects.filter(state=state).count() + Outbox.objects.filter(state=state).count()


def _runs() -> Iterator[MetricValue]:
    yield MetricValue("spm_runs_running", {}, Run.objects.filter(state=RunState.RUNNING).count())
    for kind in Run.objects.order_by("kind").values_list("kind", flat=True).distinct():
        last = Run.objects.filter(kind=kind, state=RunState.DONE).order_by("-started").first()
        if last is not None and last.finished is not None:
            label = {"kind": kind}
            yield MetricValue("spm_run_last_success_timestamp_seconds", label, last.finished.timestamp())
            yield MetricValue("spm_run_last_duration_seconds", label, last.seconds or 0.0)
            yield MetricValue("spm_run_last_samples", label, last.samples)


def _backups() -> Iterator[MetricValue]:
    if settings.SPM_BACKUP_DIR:
        newest_ms = newest_backup_ms(Path(settings.SPM_BACKUP_DIR)) or 0
        yield MetricValue("spm_backup_last_timestamp_seconds", {}, newest_ms / 1000)


class _CachedFigures:
    """Caches the figures for a moment, so that frequent scrapes do not keep the store busy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: list[MetricValue] = []
        self._until = 0.0

    def get(self) -> list[MetricValue]:
        with self._lock:
            if _clock.monotonic() >= self._until:
                self._readings = read_figures(open_backend(settings.SPM_STORE_URL), _clock.now_ms())
                self._until = _clock.monotonic() + limits.SITE_METRICS_AGE_S
            return self._readings


_clock = SystemClock()
_CACHED_FIGURES = _CachedFigures()
recent_figures = _CACHED_FIGURES.get
