"""RabbitMQ by its management interface: the node, the totals, and each queue (``rabbitmq``, ``rabbitmq_queue``…).

A user with the tag ``monitoring`` is enough. Queues beyond ``AGENT_ROWS_MAX`` are in the totals only, the longest ones
are shown. Only the columns that are used are asked for: a broker with thousands of queues pays for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.agent.collect.base import Kind, Options, access_of
from ingest.agent.collect.fetch import Unreachable, get_json
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


class RabbitMQ:
    """One broker."""

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
        found = get_json(self._url + path, self._access)
        if not isinstance(found, shape):
            raise Unreachable(f"{path}: not what RabbitMQ's management interface answers")
        return found


def overview_point(overview: Mapping[str, Any]) -> Point:
    """The totals of the cluster; counters of messages since it began to count."""
    depths = {name: overview.get("queue_totals", {}).get(name, 0) for name in _QUEUE[:3]}
    totals = {f"{name}_total": count for name, count in _numbers(overview.get("object_totals", {}))}
    stats = overview.get("message_stats", {})
    return Point(
        "rabbitmq", {**depths, **totals, **_counters(stats)}, {"cluster": str(overview.get("cluster_name", ""))}
    )


def node_point(node: Mapping[str, Any], cluster: str) -> Point:
    """One node's resources."""
    fields = dict(_numbers({name: node.get(name) for name in _NODE}))
    fields |= {name: int(bool(node.get(name))) for name in _TRUTHS}
    return Point("rabbitmq_node", fields, {"node": str(node.get("name", "")), "cluster": cluster})


def queue_point(queue: Mapping[str, Any], cluster: str) -> Point:
    """One queue."""
    fields = dict(_numbers({name: queue.get(name) for name in _QUEUE}))
    tags = {"queue": str(queue.get("name", "")), "vhost": str(queue.get("vhost", "")), "cluster": cluster}
    return Point("rabbitmq_queue", {**fields, **_counters(queue.get("message_stats", {}))}, tags)


def _counters(stats: Any) -> dict[str, float]:
    found = stats if isinstance(stats, dict) else {}
    return {f"{name}_messages": count for name, count in _numbers({name: found.get(name) for name in _STATS})}


def _numbers(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(k, v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)]


KIND = Kind("rabbitmq", RabbitMQ, {"url": str}, needed=("url",))
