"""Collects RabbitMQ from its management interface: nodes, totals and queues (``rabbitmq``, ``rabbitmq_queue``…).

A user with the tag ``monitoring`` is enough. The ``AGENT_ROWS_MAX`` longest queues have points of their own; the totals
count all queues. It requests only the columns that it uses, because a broker with thousands of queues pays for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.agent.collect.base import Options, access_of
from ingest.agent.collect.fetch import Unreachable, fetch_json
from ingest.agent.lines import Point
from spm import limits

_NODE = (
    "mem_used",
    "mem_limit",
    "disk_free",
    "disk_free_limit",
    "fd_used",
    "fd_total",
    "sockets_used",
    "proc_used",
    "proc_total",
    "run_queue",
    "uptime",
)
_TRUTHS = ("running", "mem_alarm", "disk_free_alarm")
_QUEUE = ("messages", "messages_ready", "messages_unacknowledged", "consumers", "memory", "message_bytes")
_COLUMNS = ",".join(("name", "vhost", *_QUEUE, "message_stats"))
_PAGE = f"/api/queues?page=1&page_size={limits.AGENT_ROWS_MAX}&sort=messages&sort_reverse=true&columns={_COLUMNS}"
_STATS = ("publish", "confirm", "deliver", "deliver_get", "get", "ack", "redeliver", "return_unroutable")


class RabbitMQCollector:
    """Collects one broker."""

    def __init__(self, options: Options) -> None:
        self._url, self._access = options["url"].rstrip("/"), access_of(options)

    def __call__(self) -> Sequence[Point]:
        ask = self._ask
        overview, nodes = ask("/api/overview", dict), ask("/api/nodes", list)
        queues = ask(_PAGE, dict).get("items", [])
        here = overview.get("cluster_name", "")
        return [
            overview_point(overview),
            *(node_point(node, here) for node in nodes if isinstance(node, dict)),
            *(queue_point(queue, here) for queue in queues if isinstance(queue, dict)),
        ]

    def _ask(self, path: str, shape: type) -> Any:
        answer = fetch_json(self._url + path, self._access)
        if not isinstance(answer, shape):
            raise Unreachable(f"{path}: not what RabbitMQ's management interface answers")
        return answer


def overview_point(overview: Mapping[str, Any]) -> Point:
    """Returns the totals of the cluster, with counters of messages since the statistics began."""
    depths = {name: overview.get("queue_totals", {}).get(name, 0) for name in _QUEUE[:3]}
    totals = {f"{name}_total": count for name, count in _numbers(overview.get("object_totals", {}))}
    stats = overview.get("message_stats", {})
    return Point(
        "rabbitmq", {**depths, **totals, **_counters(stats)}, {"cluster": str(overview.get("cluster_name", ""))}
    )


def node_point(node: Mapping[str, Any], cluster: str) -> Point:
    """Returns the resources of one node."""
    fields = dict(_numbers({name: node.get(name) for name in _NODE}))
    fields |= {name: int(bool(node.get(name))) for name in _TRUTHS}
    return Point("rabbitmq_node", fields, {"node": str(node.get("name", "")), "cluster": cluster})


def queue_point(queue: Mapping[str, Any], cluster: str) -> Point:
    """Returns the numbers of one queue."""
    fields = dict(_numbers({name: queue.get(name) for name in _QUEUE}))
    labels = {"queue": str(queue.get("name", "")), "vhost": str(queue.get("vhost", "")), "cluster": cluster}
    return Point("rabbitmq_queue", {**fields, **_counters(queue.get("message_stats", {}))}, labels)


def _counters(stats: Any) -> dict[str, float]:
    counts = stats if isinstance(stats, dict) else {}
    return {f"{name}_messages": count for name, count in _numbers({name: counts.get(name) for name in _STATS})}


def _numbers(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(k, v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)]
