"""Collects exporters: services that show ``/metrics`` in Prometheus' text form. Metrics keep their names.

Every sample is one point with the exporter's labels and ``instance``, which identifies the exporter. ``keep`` and
``drop`` are lists of prefixes of metric names. Times from the exporter are kept. Bad lines are counted; if no line can
be read, the collector fails and reports the first one.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from ingest.agent.collect.base import Options, access_of
from ingest.agent.collect.exposition import Page
from ingest.agent.collect.fetch import Unreachable, fetch
from ingest.agent.lines import Point

ACCEPT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


class ExporterCollector:
    """Collects one exporter."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"], access_of(options)
        parts = urlsplit(self._url)
        self._instance = options.get("name") or parts.netloc.rpartition("@")[2]
        self._keep = tuple(options.get("keep", ())) or ("",)
        self._drop = tuple(options.get("drop", ()))

    def __call__(self) -> Sequence[Point]:
        page = Page(fetch(self._url, self._access, accept=ACCEPT).decode(errors="replace"))
        points = [
            Point(sample.name, {"value": sample.value}, {**sample.labels, "instance": self._instance}, sample.at_ms)
            for sample in page.samples()
            if sample.name.startswith(self._keep) and not (self._drop and sample.name.startswith(self._drop))
        ]
        if page.bad and not points:
            raise Unreachable(f"{self._url} shows no metrics; a line is {page.example!r}")
        bad = Point("agent_exporter", {"lines_bad": page.bad}, {"instance": self._instance})
        return [*points, bad] if page.bad else points
