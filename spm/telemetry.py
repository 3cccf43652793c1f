"""The catalogue of the product's own metrics, which each of its processes counts about itself.

Every metric is defined here, once, with its name, help and labels; other modules import it and count. Names follow
Prometheus' conventions (``spm_``, base units, ``_total``, ``_seconds``). Labels have few values, none of which a sender
chooses. ``exposition`` is for a scraper, ``metric_values`` for the app of the product's own metrics. Where several
processes serve one address (gunicorn's workers), the library adds their counts up over files in the folder that
``PROMETHEUS_MULTIPROC_DIR`` names. This module never uses a store, a database or a network.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from spm.clock import Clock, SystemClock

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would be one more series for each series
REGISTRY = CollectorRegistry()
_INCLUDED: list[Callable[[], str]] = []  # one per consumer of this process
ProcessCollector(registry=REGISTRY)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_CLOCK = SystemClock()
_REQUESTS_CACHED = 4_096  # metrics by view, method and code: looking one up takes longer than counting
QUICK_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # upper bounds of a histogram's buckets
LONG_S = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)

REQUESTS = Counter(
    "spm_http_requests_total",
    "Requests answered, by view, method and status code",
    ["view", "method", "code"],
    registry=REGISTRY,
)
REQUEST_S = Histogram(
    "spm_http_request_duration_seconds",
    "From a request's first byte to its answer",
    ["view"],
    buckets=QUICK_S,
    registry=REGISTRY,
)
ACCEPTED_MESSAGES = Counter("spm_accepted_messages_total", "Messages stamped by this process", registry=REGISTRY)
ACCEPTED_SAMPLES = Counter("spm_accepted_samples_total", "Samples in them", registry=REGISTRY)
REJECTED_LINES = Counter("spm_rejected_lines_total", "Lines and items refused to their senders", registry=REGISTRY)
NOTES_DROPPED = Counter(
    "spm_notes_dropped_total",
    "Notes about messages (sources, rejections, descriptions) that nobody will see, by kind",
    ["kind"],
    registry=REGISTRY,
)
REFUSED_BODIES = Counter(
    "spm_refused_bodies_total",
    "Bodies refused before they were read, by reason",
    ["reason"],
    registry=REGISTRY,
)
REFUSED_SERIES = Counter("spm_refused_series_total", "New series over an app's quota, each time", registry=REGISTRY)
PUBLISH_S = Histogram(
    "spm_publish_duration_seconds",
    "From a message's stamp until it was durable, by outcome",
    ["outcome"],
    buckets=QUICK_S,
    registry=REGISTRY,
)
STORE_S = Histogram(
    "spm_store_probe_duration_seconds",
    "One row read from the store, each time these metrics are sent",
    buckets=QUICK_S,
    registry=REGISTRY,
)
STORE_FAILURES = Counter("spm_store_probe_failures_total", "Reads of such a row without an answer", registry=REGISTRY)
TASK_S = Histogram(
    "spm_task_duration_seconds",
    "Tasks that beat sends, by outcome",
    ["task", "outcome"],
    buckets=LONG_S,
    registry=REGISTRY,
)
TASK_LAST = Gauge(
    "spm_task_last_success_timestamp_seconds",
    "When a task last succeeded",
    ["task"],
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
QUERY_STEPS = Counter(
    "spm_query_steps_total",
    "Steps of range queries: computed, or taken from the result cache",
    ["origin"],
    registry=REGISTRY,
)
QUERY_CACHE_BYTES = Gauge(
    "spm_query_kept_bytes", "Answers in the result cache", registry=REGISTRY, multiprocess_mode="livesum"
)
EVENT_LISTENERS = Gauge(
    "spm_event_listeners", "Open streams and long polls of events", registry=REGISTRY, multiprocess_mode="livesum"
)
RULES_EVALUATED = Counter(
    "spm_alerts_rules_judged_total", "Rules evaluated, by outcome", ["outcome"], registry=REGISTRY
)
RULE_S = Histogram(
    "spm_alerts_rule_duration_seconds",
    "From a rule's query until its states are written",
    buckets=QUICK_S,
    registry=REGISTRY,
)
DELIVERIES = Counter("spm_alerts_deliveries_total", "Notifications, by outcome", ["outcome"], registry=REGISTRY)
OWN_PUSHES = Counter(
    "spm_own_pushes_total",
    "Times this process sent its metrics to the product's own app, by outcome",
    ["outcome"],
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The present value of one series, with its name and labels."""

    name: str
    labels: Mapping[str, str]
    value: float


def count_request(view: str, method: str, status: int, begun_s: float) -> None:
    """Count and time a request that is answered now; ``begun_s``: monotonic time at which it arrived."""
    times, count = _request_metrics(view, method if method in _METHODS else "other", status)
    times.observe(_CLOCK.monotonic() - begun_s)
    count.inc()


@lru_cache(maxsize=_REQUESTS_CACHED)
def _request_metrics(view: str, method: str, status: int) -> tuple[Histogram, Counter]:
    return REQUEST_S.labels(view), REQUESTS.labels(view, method, str(status))


def exposition(*more: str) -> str:
    """Write the metrics of all processes that share this one's address in Prometheus' text format, then ``more``."""
    registry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode() + "".join(more)


def metric_values() -> Iterator[MetricValue]:
    """Yield the metrics of this process; values that are no finite numbers (a gauge never set) are left out."""
    others = (family for written in list(_INCLUDED) for family in text_string_to_metric_families(written()))
    for family in chain(REGISTRY.collect(), others):
        for sample in family.samples:
            if math.isfinite(sample.value):
                yield MetricValue(sample.name, sample.labels, float(sample.value))


def include(written: Callable[[], str]) -> Callable[[], None]:
    """Include another text in Prometheus' format in ``metric_values``; return a function that ends this."""
    _INCLUDED.append(written)
    return lambda: _INCLUDED.remove(written)


def gauges_text(values: Iterable[MetricValue], helps: Mapping[str, str]) -> str:
    """Write values as gauges in Prometheus' text format."""
    families: dict[str, GaugeMetricFamily] = {}
    for one in values:
        labels = sorted(one.labels)
        if one.name not in families:
            families[one.name] = GaugeMetricFamily(one.name, helps.get(one.name, one.name), labels=labels)
        families[one.name].add_metric([one.labels[name] for name in labels], one.value)
    registry = CollectorRegistry()
    registry.register(_Fixed(list(families.values())))
    return generate_latest(registry).decode()


class _Fixed:
    """A collector of families that exist already."""

    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []


@contextmanager
def timed(histogram: Histogram, *labels: str, clock: Clock | None = None) -> Iterator[None]:
    """Time the block: with ``labels``, and with ``done`` or ``failed`` where the histogram has one more label."""
    clock = clock or SystemClock()
    started, outcome = clock.monotonic(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        names = histogram._labelnames
        values = (*labels, outcome) if len(names) > len(labels) else labels
        (histogram.labels(*values) if names else histogram).observe(clock.monotonic() - started)
