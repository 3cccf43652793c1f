"""What every process of the product counts and times about itself, in Prometheus' form.

The catalogue: every metric is made here, once, with its name, its help and its labels; rooms import it and count. Names
follow Prometheus' conventions (``spm_``, base units, ``_total``, ``_seconds``). Labels have few values, none of which a
sender chooses. ``text`` is what a scraper gets, ``readings`` what the process sends to the product's own app. Where
several processes answer one address (gunicorn's workers), the library adds them up over files in the folder that
``PROMETHEUS_MULTIPROC_DIR`` names. Nothing here talks to a store, a database or a network.
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

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each series, which nobody asks for
REGISTRY = CollectorRegistry()
_INCLUDED: list[Callable[[], str]] = []  # one per consumer of this process
ProcessCollector(registry=REGISTRY)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_REQUESTS_KEPT = 4_096  # of all views, methods and codes there are: looking one up takes longer than counting
QUICK_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # upper ends of the steps in which times are counted
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
REFUSED_BODIES = Counter(
    "spm_refused_bodies_total",
    "Bodies refused as a whole, before they were read, by why",
    ["reason"],
    registry=REGISTRY,
)
REFUSED_SERIES = Counter("spm_refused_series_total", "New series over an app's quota, each time", registry=REGISTRY)
PUBLISH_S = Histogram(
    "spm_publish_duration_seconds",
    "From a message's stamp until it was durable, by what became of it",
    ["outcome"],
    buckets=QUICK_S,
    registry=REGISTRY,
)
STORE_S = Histogram(
    "spm_store_probe_duration_seconds",
    "One row read from the store, every time these numbers are sent",
    buckets=QUICK_S,
    registry=REGISTRY,
)
STORE_FAILURES = Counter("spm_store_probe_failures_total", "Such reads that got no answer", registry=REGISTRY)
TASK_S = Histogram(
    "spm_task_duration_seconds",
    "Tasks that beat sends, by what became of them",
    ["task", "outcome"],
    buckets=LONG_S,
    registry=REGISTRY,
)
TASK_LAST = Gauge(
    "spm_task_last_success_timestamp_seconds",
    "When a task last came to its end",
    ["task"],
    registry=REGISTRY,
    multiprocess_mode="mostrecent",
)
QUERY_STEPS = Counter(
    "spm_query_steps_total",
    "Steps of range queries: computed, or kept from a question before",
    ["origin"],
    registry=REGISTRY,
)
QUERY_KEPT = Gauge(
    "spm_query_kept_bytes", "Answers kept for dashboards that refresh", registry=REGISTRY, multiprocess_mode="livesum"
)
RULES_JUDGED = Counter("spm_alerts_rules_judged_total", "Rules judged, by outcome", ["outcome"], registry=REGISTRY)
RULE_S = Histogram(
    "spm_alerts_rule_duration_seconds",
    "From the question to the engine until the rule's states are written",
    buckets=QUICK_S,
    registry=REGISTRY,
)
DELIVERIES = Counter("spm_alerts_deliveries_total", "Messages to people, by outcome", ["outcome"], registry=REGISTRY)
OWN_PUSHES = Counter(
    "spm_own_pushes_total",
    "Times this process sent its metrics to the product's own app, by outcome",
    ["outcome"],
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number: a series' name, its labels, its value now."""

    name: str
    labels: Mapping[str, str]
    value: float


def answered(view: str, method: str, status: int, seconds: float) -> None:
    """Count and time one request."""
    times, count = _of_requests(view, method, status)
    times.observe(seconds)
    count.inc()


@lru_cache(maxsize=_REQUESTS_KEPT)
def _of_requests(view: str, method: str, status: int) -> tuple[Histogram, Counter]:
    return REQUEST_S.labels(view), REQUESTS.labels(view, method, str(status))


def text(*more: str) -> str:
    """All of it, as Prometheus reads it; of all processes that share this one's address. ``more`` is put behind it."""
    registry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode() + "".join(more)


def readings() -> Iterator[Reading]:
    """The numbers of this process alone. What is no number (a gauge nobody has set) is left out."""
    others = (family for written in list(_INCLUDED) for family in text_string_to_metric_families(written()))
    for family in chain(REGISTRY.collect(), others):
        for sample in family.samples:
            if math.isfinite(sample.value):
                yield Reading(sample.name, sample.labels, float(sample.value))


def include(written: Callable[[], str]) -> Callable[[], None]:
    """Have ``readings`` tell what somebody else counts and writes in Prometheus' form; returns how to end that."""
    _INCLUDED.append(written)
    return lambda: _INCLUDED.remove(written)


def told(found: Iterable[Reading], helps: Mapping[str, str]) -> str:
    """Gauges that somebody else counted, in the same form."""
    families: dict[str, GaugeMetricFamily] = {}
    for one in found:
        labels = sorted(one.labels)
        if one.name not in families:
            families[one.name] = GaugeMetricFamily(one.name, helps.get(one.name, one.name), labels=labels)
        families[one.name].add_metric([one.labels[name] for name in labels], one.value)
    registry = CollectorRegistry()
    registry.register(_Fixed(list(families.values())))
    return generate_latest(registry).decode()


class _Fixed:
    """A collector of families that are made already."""

    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []


@contextmanager
def timed(histogram: Histogram, *labels: str, clock: Clock | None = None) -> Iterator[None]:
    """Time what happens inside: with ``labels``, and last ``done`` or ``failed`` where one more label is wanted."""
    clock = clock or SystemClock()
    begun, outcome = clock.monotonic(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        names = histogram._labelnames
        values = (*labels, outcome) if len(names) > len(labels) else labels
        (histogram.labels(*values) if names else histogram).observe(clock.monotonic() - begun)
