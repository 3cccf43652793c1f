"""Presents one host for the head of its page: its state, its labels, its agent, its alerts.

A name that neither a source nor any series has belongs to no host; ``nearest_names`` says which ones are meant. Enter
by ``head_of``.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce

from frontend.presenters.hosts.table import is_host
from frontend.presenters.panels import quote
from ingest.models import Agent
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.errors import SpmError
from spm.query import storage_for
from spm.query.promql.engine import Engine
from spm.query.request.batches import METRIC_NAME, Matcher

_SERIES_READ = 500  # of a host, for its labels
_NAMES_SHOWN = 5
_SPAN_MS = 7 * 86_400_000
_SEEN = "max(ts_of_last_over_time({%s}[30m]))"


@dataclass(frozen=True, slots=True)
class HostHead:
    """What is known of a host. ``labels`` are those that all its series have; ``last_ms`` is 0 where nobody knows."""

    state: str
    last_ms: int
    firing: int
    labels: Mapping[str, str] = field(default_factory=dict)
    agent: Agent | None = None

    def age_ms(self, now_ms: int) -> int:
        """How long ago the host was last heard of."""
        return max(now_ms - self.last_ms, 0)


def head_of(app: App, host: str, now_ms: int, *, firing: int) -> HostHead | None:
    """Return the head of a host; ``None`` if the app never heard of it."""
    is_storable = "\0" not in host  # in PostgreSQL; a series may be named so all the same
    source = Source.objects.filter(app=app, name=host).first() if is_storable else None
    last_ms = int(source.last_seen.timestamp() * 1000) if source else 0
    try:
        matchers = [Matcher("host", "=", host)]
        label_sets = storage_for(app.pk).series([matchers], now_ms - _SPAN_MS, now_ms, most=_SERIES_READ)
        if source is None and label_sets:
            last_ms = _last_sample_ms(app, host, now_ms)
    except SpmError:
        label_sets = []
        if source is None:
            raise
    if source is None and not label_sets:
        return None
    state = sources.state(last_ms, now_ms, source.period_ms if source else None)
    agent = Agent.objects.filter(app=app, name=host).first() if is_storable else None
    return HostHead(state, last_ms, firing, common_labels(label_sets), agent)


def common_labels(label_sets: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the labels that all series have alike, but the host's name. Pure."""
    first = set(label_sets[0].items()) if label_sets else set()
    alike = reduce(lambda one, other: one & other, (set(labels.items()) for labels in label_sets), first)
    return dict(sorted((name, value) for name, value in alike if name not in ("host", METRIC_NAME)))


def nearest_names(app: App, host: str, now_ms: int) -> Sequence[str]:
    """List the hosts whose names are most like this one."""
    known = {name for name in Source.objects.filter(app=app).values_list("name", flat=True) if is_host(name)}
    with suppress(SpmError):  # the sources alone are enough for a hint
        known.update(storage_for(app.pk).label_values("host", [], now_ms - _SPAN_MS, now_ms))
    by_fold = {name.casefold(): name for name in known}
    close = get_close_matches(host.casefold(), by_fold, n=_NAMES_SHOWN, cutoff=0.5)
    return [by_fold[name] for name in close]


def _last_sample_ms(app: App, host: str, now_ms: int) -> int:
    matcher = f'host={quote(host)},__name__!=""'
    result = Engine(storage_for(app.pk)).instant(_SEEN % matcher, now_ms)
    return round(float(result.values[0, 0]) * 1000) if result.present.any() else 0
