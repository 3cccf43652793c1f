"""Collects Solr from its metrics interface: the JVM, and index, queries and caches of each core (``solr…``)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.agent.collect.base import Options, access_of, numeric_fields, snake_case
from ingest.agent.collect.fetch import Unreachable, fetch_json
from ingest.agent.lines import Point
from spm import limits

_JVM = (
    "memory.heap.used",
    "memory.heap.max",
    "memory.heap.committed",
    "threads.count",
    "os.processCpuLoad",
    "os.openFileDescriptorCount",
    "gc.",
)
_CORE = (
    "INDEX.sizeInBytes",
    "SEARCHER.searcher.numDocs",
    "SEARCHER.searcher.deletedDocs",
    "SEARCHER.searcher.maxDoc",
    "QUERY./select.requestTimes",
    "QUERY./select.errors",
    "UPDATE./update.requestTimes",
    "UPDATE./update.errors",
    "CACHE.searcher.filterCache",
    "CACHE.searcher.queryResultCache",
    "CACHE.searcher.documentCache",
    "UPDATE.updateHandler.commits",
)
_PREFIXES = ",".join((*_JVM, *_CORE))
_UNDER = re.compile(r"[./]+")


class SolrCollector:
    """Collects one node; ``url`` is that of the application: ``http://127.0.0.1:8983/solr``."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"].rstrip("/"), access_of(options)

    def __call__(self) -> Sequence[Point]:
        url = f"{self._url}/admin/metrics?wt=json&json.nl=map&group=jvm,core&prefix={_PREFIXES}"
        return points(fetch_json(url, self._access), self._url)


def points(answer: Any, url: str) -> Sequence[Point]:
    """Returns one point for the JVM, and one for each core."""
    registries = answer.get("metrics") if isinstance(answer, dict) else None
    if isinstance(registries, list):  # the form of older versions: name, values, name, values
        registries = dict(zip(registries[::2], registries[1::2], strict=False))
    if not isinstance(registries, dict):
        raise Unreachable(f"{url}: not what Solr's metrics interface answers")
    cores = [name for name in sorted(registries) if name.startswith("solr.core.")][: limits.AGENT_ROWS_MAX]
    jvm = registries.get("solr.jvm")
    own = [Point("solr_jvm", _fields(jvm), {"server": url})] if isinstance(jvm, dict) else []
    return own + [Point("solr_core", _fields(registries[name]), _core_labels(name, url)) for name in cores]


def _fields(values: Mapping[str, Any]) -> dict[str, float]:
    fields: dict[str, float] = {}
    for name, value in values.items():
        path = snake_case(_UNDER.sub("_", name.removeprefix("SEARCHER.").removeprefix("CACHE.")))
        fields |= numeric_fields(
            {path: value} if not isinstance(value, dict) else {f"{path}_{k}": v for k, v in value.items()}
        )
    return fields


def _core_labels(registry: str, url: str) -> dict[str, str]:
    """Returns the labels of ``solr.core.films`` or ``solr.core.films.shard1.replica_n1``."""
    core, _, rest = registry.removeprefix("solr.core.").partition(".")
    return {"core": core, "replica": rest, "server": url}
