"""Collects Elasticsearch and OpenSearch: the cluster's health and the numbers of one node (``elasticsearch…``).

It requests the node statistics of ``_local`` only, because each node has an agent of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.agent.collect.base import Options, access_of, numeric_fields
from ingest.agent.collect.fetch import Unreachable, fetch_json
from ingest.agent.lines import Point

_HEALTH = {"green": 0, "yellow": 1, "red": 2}
_WANTED = (
    "name",
    "indices.docs",
    "indices.store",
    "indices.indexing",
    "indices.search",
    "indices.merges",
    "indices.segments",
    "indices.query_cache",
    "indices.fielddata",
    "jvm.mem",
    "jvm.gc",
    "thread_pool.*.queue",
    "thread_pool.*.rejected",
    "fs.total",
    "os.cpu.percent",
    "http",
    "breakers.parent",
)
_FILTER = ",".join(f"nodes.*.{part}" for part in _WANTED)


class ElasticsearchCollector:
    """Collects one node."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"].rstrip("/"), access_of(options)

    def __call__(self) -> Sequence[Point]:
        health = fetch_json(f"{self._url}/_cluster/health?local=true", self._access)
        stats = fetch_json(f"{self._url}/_nodes/_local/stats?filter_path={_FILTER}", self._access)
        if not isinstance(health, dict) or "cluster_name" not in health or not isinstance(stats, dict):
            raise Unreachable(f"{self._url}: not what Elasticsearch answers")
        return [health_point(health), *node_points(stats, str(health["cluster_name"]))]


def health_point(health: Mapping[str, Any]) -> Point:
    """Returns the cluster's state (0 green, 1 yellow, 2 red) and its shards."""
    fields = {"status": _HEALTH.get(str(health.get("status")), 2), **numeric_fields(health)}
    return Point("elasticsearch", fields, {"cluster": str(health["cluster_name"])})


def node_points(stats: Mapping[str, Any], cluster: str) -> Sequence[Point]:
    """Returns documents, memory, file system and queues of a node."""
    points = []
    for node in stats.get("nodes", {}).values():
        labels = {"cluster": cluster, "node": str(node.get("name", ""))}
        pools = node.pop("thread_pool", {})
        points += [
            Point(f"elasticsearch_{part}", numeric_fields(values), labels)
            for part, values in node.items()
            if isinstance(values, dict)
        ]
        points += [
            Point("elasticsearch_pool", numeric_fields(values), {**labels, "pool": pool})
            for pool, values in pools.items()
            if isinstance(values, dict)
        ]
    return points
