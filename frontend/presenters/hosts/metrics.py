"""Groups the metrics of one host: its own, one group per service found among them, and all others.

A metric belongs to the group of its first word. Hosts have groups of their own (CPU, memory, disks …), which the page's
first tab draws; of the others each is a tab with a chart per metric, if the group is large enough. Enter by
``metrics_of``; ``group_metrics`` and ``panels_of`` are pure.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.presenters.panels import Panel
from spm.accounts.models import App
from spm.query import storage_for
from spm.query.formats.promql_format import format_selector
from spm.query.request.batches import METRIC_NAME, Matcher

HOST_PANELS_MAX = 40  # of one tab: as many as one request asks for
HOST_TABS_MAX = 12
_NAMES_SHOWN = 200  # of a group: of more, people type a part of the name
_OPEN_MAX = 60  # names that are listed without a click
_TAB_MIN = 3  # metrics that make a tab
_SPAN_MS = 7 * 86_400_000
_WORD = re.compile(r"[^_.:/\s]+")
# fmt: off
_OF_HOSTS = frozenset({
    "agent", "cpu", "disk", "diskio", "interrupts", "kernel", "load", "mem", "net", "netstat", "node", "nstat",
    "process", "processes", "procstat", "swap", "system", "top",
    "all",  # the name of the tab of all metrics
})
# fmt: on
_TITLES = {
    "elasticsearch": "Elasticsearch",
    "http": "HTTP",
    "jvm": "JVM",
    "mysql": "MySQL",
    "nginx": "nginx",
    "pg": "PostgreSQL",
    "postgresql": "PostgreSQL",
    "rabbitmq": "RabbitMQ",
    "redis": "Redis",
    "solr": "Solr",
}
_COUNTERS = re.compile(r"_(total|count|sum|bytes_(recv|sent))$")
_OF_HISTOGRAM = re.compile(r"_(count|sum)$")


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """The metrics whose names begin with one word."""

    word: str
    names: Sequence[str]

    @property
    def title(self) -> str:
        """The name of the group as people write it."""
        return _TITLES.get(self.word, self.word)


@dataclass(frozen=True, slots=True)
class HostMetrics:
    """All metrics of a host by groups, and the groups that are tabs."""

    groups: Sequence[MetricGroup]
    tabs: Sequence[MetricGroup]

    @property
    def count(self) -> int:
        """How many metrics there are."""
        return sum(len(group.names) for group in self.groups)

    def matching(self, text: str) -> Sequence[MetricGroup]:
        """Return the groups with those metrics alone whose names contain a text."""
        folded = text.casefold()
        matching = (
            MetricGroup(group.word, [name for name in group.names if folded in name.casefold()])
            for group in self.groups
        )
        return [group for group in matching if group.names]


def metrics_of(app: App, host: str, now_ms: int) -> HostMetrics:
    """Read the names of a host's metrics."""
    of_host = [[Matcher("host", "=", host)]]
    return group_metrics(storage_for(app.pk).label_values(METRIC_NAME, of_host, now_ms - _SPAN_MS, now_ms))


def group_metrics(names: Sequence[str]) -> HostMetrics:
    """Group names by their first word; the largest groups that are not the host's own become tabs."""
    by_word: Mapping[str, list[str]] = defaultdict(list)
    for name in names:
        word = _WORD.search(name)
        by_word[word[0].lower() if word else name].append(name)
    groups = [MetricGroup(word, sorted(by_word[word])) for word in sorted(by_word)]
    services = [group for group in groups if group.word not in _OF_HOSTS and len(group.names) >= _TAB_MIN]
    largest = sorted(services, key=lambda group: (group.word not in _TITLES, -len(group.names)))[:HOST_TABS_MAX]
    return HostMetrics(groups, sorted(largest, key=lambda group: group.word))


def expression_of(metric: str, host: str) -> str:
    """Write the expression that draws a metric of a host: counters as rates, histograms as a percentile."""
    selector = format_selector(metric, [Matcher("host", "=", host)])
    if metric.endswith("_bucket"):
        return f"histogram_quantile(0.95, sum by (le) (rate({selector}[$__rate_interval])))"
    return f"rate({selector}[$__rate_interval])" if _COUNTERS.search(metric) else selector


def panels_of(group: MetricGroup, host: str) -> list[Panel]:
    """List the charts of a group: one per metric; the count and sum of a histogram stand in its percentile."""
    known = set(group.names)
    panels = []
    for name in group.names:
        if _OF_HISTOGRAM.search(name) and _OF_HISTOGRAM.sub("_bucket", name) in known:
            continue
        title = f"{name.removesuffix('_bucket')}, 95 %" if name.endswith("_bucket") else name
        panels.append(Panel(title, expression_of(name, host), "bytes" if re.search(r"_bytes$", name) else ""))
    return panels[:HOST_PANELS_MAX]


def metric_list(metrics: HostMetrics, host: str, sought: str) -> dict[str, Any]:
    """List the names of a host's metrics that contain a text, in groups, each with its expression."""
    groups = metrics.matching(sought)
    return {
        "metrics": metrics,
        "sought": sought,
        "is_open": sum(len(group.names) for group in groups) <= _OPEN_MAX or len(groups) == 1,
        "groups": [
            {
                "title": group.title,
                "names": group.names,
                "shown": [(name, expression_of(name, host)) for name in group.names[:_NAMES_SHOWN]],
                "more": max(len(group.names) - _NAMES_SHOWN, 0),
            }
            for group in groups
        ],
    }
