"""Exporters: whatever shows ``/metrics`` in Prometheus' text form, under its own names.

Every sample is a point of its own with the exporter's labels, and ``instance``, which says whose it is; ``keep`` and
``drop`` are lists of how names begin. Times that an exporter gives are kept. What cannot be read is a failure that
names the first such line only if nothing else could be read either; else it is counted.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from ingest.agent.collect.base import Kind, Options, access_of
from ingest.agent.collect.exposition import Page
from ingest.agent.collect.fetch import Unreachable, get
from ingest.agent.lines import Point

ACCEPT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


class Exporter:
    """One address."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"], access_of(options)
        parts = urlsplit(self._url)
        self._instance = options.get("name") or parts.netloc.rpartition("@")[2]
        self._keep = tuple(options.get("keep", ())) or ("",)
        self._drop = tuple(options.get("drop", ()))

    def __call__(self) -> Sequence[Point]:
        page = Page(get(self._url, self._access, accept=ACCEPT).decode(errors="replace"))
        points = [
            Point(sample.name, {"value": sample.value}, {**sample.labels, "instance": self._instance}, sample.at_ms)
            for sample in page.samples()
            if sample.name.startswith(self._keep) and not (self._drop and sample.name.startswith(self._drop))
        ]
        if page.bad and not points:
            raise Unreachable(f"{self._url} shows no metrics; a line is {page.example!r}")
        bad = Point("agent_exporter", {"lines_bad": page.bad}, {"instance": self._instance})
        return [*points, bad] if page.bad else points


KIND = Kind("prometheus", Exporter, {"url": str, "keep": list, "drop": list}, needed=("url",))
