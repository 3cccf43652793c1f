"""What senders of metrics send, in their own forms: ten minutes of one sender, read by the protocol that it speaks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ingest.agent.collect.services import nginx, rabbitmq
from ingest.agent.lines import Point
from ingest.protocols.influx import reader as influx
from ingest.protocols.json import collectd
from ingest.protocols.otlp import reader as otlp
from ingest.protocols.otlp.json_form import to_protobuf
from ingest.protocols.prometheus import text as exposition
from spm.wire import Parsed

STEP_S, STEPS = 15, 40
Moment = Callable[[int, int], bytes]  # the body at a time in seconds, the at-th one
GB = 1_000_000_000


def _lines(points: Sequence[Point], seconds: int) -> bytes:
    """Write line protocol; a name with a blank or a comma occurs in no point here."""
    rows = []
    for point in points:
        labels = "".join(f",{name}={value}" for name, value in point.labels.items() if value)
        fields = ",".join(f"{name}={value}" for name, value in point.fields.items())
        rows.append(f"{point.measurement}{labels} {fields} {seconds * 10**9}")
    return "\n".join(rows).encode()


def _text(names: Mapping[str, float], instance: str, seconds: int) -> bytes:
    """Write Prometheus' text with the label of the target that a scraper adds."""
    rows = []
    for name, value in names.items():
        metric, _, rest = name.partition("{")
        inside = f'instance="{instance}",{rest[:-1]}' if rest else f'instance="{instance}"'
        rows.append(f"{metric}{{{inside}}} {value} {seconds * 1000}")
    return ("\n".join(rows) + "\n").encode()


def _agent(seconds: int, at: int) -> bytes:
    labels = {"host": "web-1"}
    points = [
        Point("cpu", {"usage_total": 31.5, "usage_user": 20, "usage_system": 9}, labels),
        Point("cpu", {"usage_iowait": 2, "usage_steal": 0.5}, labels),
        Point("mem", {"used_percent": 61, "total": 8 * GB, "used": 5 * GB, "swap_used_percent": 1}, labels),
        Point("load", {"load1": 0.7, "load5": 0.6, "load15": 0.5, "cpus": 4}, labels),
        Point("net", {"bytes_recv": at * 9_000, "bytes_sent": at * 4_000}, {**labels, "interface": "eth0"}),
        Point("diskio", {"read_bytes": at * 7_000, "write_bytes": at * 8_000}, {**labels, "name": "sda"}),
        Point("disk", {"used_percent": 44.5, "total": 90 * GB}, {**labels, "path": "/"}),
        Point("processes", {"total": 120, "running": 2, "threads": 300}, labels),
    ]  # fmt: skip
    return _lines(points, seconds)


def _telegraf(seconds: int, at: int) -> bytes:
    labels = {"host": "web-1"}
    cpu = {"usage_idle": 70, "usage_user": 20, "usage_system": 8, "usage_iowait": 1.5, "usage_steal": 0.5}
    points = [
        *(Point("cpu", cpu, {**labels, "cpu": name}) for name in ("cpu0", "cpu-total")),
        Point("mem", {"used_percent": 61, "total": 8 * GB, "available": 3 * GB}, labels),
        Point("system", {"load1": 0.7, "load5": 0.6, "load15": 0.5, "n_cpus": 4, "uptime": 5_000 + at}, labels),
        Point("net", {"bytes_recv": at * 9_000, "bytes_sent": at * 4_000}, {**labels, "interface": "eth0"}),
        Point("diskio", {"read_bytes": at * 7_000, "write_bytes": at * 8_000}, {**labels, "name": "sda"}),
        Point("disk", {"used_percent": 44.5, "total": 90 * GB}, {**labels, "path": "/", "fstype": "ext4"}),
        Point("swap", {"used_percent": 3, "total": 2 * GB}, labels),
        Point("processes", {"total": 120, "running": 2, "sleeping": 118}, labels),
    ]
    return _lines(points, seconds)


def _node(seconds: int, at: int) -> bytes:
    modes = {"idle": 11, "user": 3, "system": 0.8, "iowait": 0.2}
    disk = '{device="/dev/sda1",fstype="ext4",mountpoint="/"}'
    return _text(
        {
            **{f'node_cpu_seconds_total{{cpu="0",mode="{mode}"}}': at * rate for mode, rate in modes.items()},
            "node_memory_MemTotal_bytes": 8 * GB,
            "node_memory_MemAvailable_bytes": 3 * GB,
            "node_memory_SwapTotal_bytes": 2 * GB,
            "node_memory_SwapFree_bytes": GB,
            "node_load1": 0.7,
            'node_network_receive_bytes_total{device="eth0"}': at * 9_000,
            'node_network_transmit_bytes_total{device="eth0"}': at * 4_000,
            'node_disk_read_bytes_total{device="sda"}': at * 7_000,
            'node_disk_written_bytes_total{device="sda"}': at * 8_000,
            f"node_filesystem_size_bytes{disk}": 90 * GB,
            f"node_filesystem_avail_bytes{disk}": 50 * GB,
            "node_context_switches_total": at * 40_000,
            "node_boot_time_seconds": seconds - 5_000,
        },
        "web-1:9100",
        seconds,
    )  # fmt: skip


def _otel(seconds: int, at: int) -> bytes:
    def points(values: Mapping[str, float], **labels: str) -> list[dict[str, Any]]:
        """One point for each value; its name is that of an attribute and its value."""
        return [
            {
                "timeUnixNano": str(seconds * 10**9),
                "asDouble": value,
                "attributes": [
                    {"key": key, "value": {"stringValue": text}}
                    for key, text in [*labels.items(), *([name.split("=")] if "=" in name else [])]
                ],
            }
            for name, value in values.items()
        ]

    def total(name: str, unit: str, data: list[dict[str, Any]], *, grows: bool) -> dict[str, Any]:
        return {
            "name": name,
            "unit": unit,
            "sum": {"aggregationTemporality": 2, "isMonotonic": grows, "dataPoints": data},
        }

    gauge = points({"": 0.7})
    cpu = {"state=idle": at * 11.0, "state=user": at * 3.0, "state=system": at * 1.0}
    network = {f"direction={way}": at * 9e3 for way in ("receive", "transmit")}
    disk = {f"direction={way}": at * 9e3 for way in ("read", "write")}
    space = points({"state=used": 4e10, "state=free": 5e10}, device="/dev/sda1", mountpoint="/")
    metrics = [
        {"name": "system.cpu.load_average.1m", "unit": "{thread}", "gauge": {"dataPoints": gauge}},
        total("system.cpu.time", "s", points(cpu, cpu="cpu0"), grows=True),
        total("system.memory.usage", "By", points({"state=used": 5e9, "state=free": 3e9}), grows=False),
        total("system.network.io", "By", points(network, device="eth0"), grows=True),
        total("system.disk.io", "By", points(disk, device="sda"), grows=True),
        total("system.filesystem.usage", "By", space, grows=False),
        total("system.paging.usage", "By", points({"state=used": 1e9, "state=free": 1e9}), grows=False),
    ]
    host = [{"key": "host.name", "value": {"stringValue": "web-1"}}]
    body = {"resourceMetrics": [{"resource": {"attributes": host}, "scopeMetrics": [{"metrics": metrics}]}]}
    return to_protobuf(json.dumps(body).encode())


def _collectd(seconds: int, at: int) -> bytes:
    def one(plugin: str, kind: str, values: Mapping[str, float], instance: str = "", of: str = "") -> dict[str, Any]:
        names = {"plugin": plugin, "plugin_instance": instance, "type": kind, "type_instance": of}
        return {
            "host": "web-1",
            "time": float(seconds),
            "interval": 15.0,
            "dsnames": list(values),
            "values": list(values.values()),
            **names,
        }

    lists = [
        *(one("cpu", "cpu", {"value": at * rate}, "0", state) for state, rate in (("idle", 11), ("user", 4))),
        *(one("memory", "memory", {"value": size}, "", state) for state, size in (("used", 5e9), ("free", 3e9))),
        *(one("swap", "swap", {"value": size}, "", state) for state, size in (("used", 1e9), ("free", 1e9))),
        *(one("df", "df_complex", {"value": size}, "root", state) for state, size in (("used", 4e10), ("free", 5e10))),
        one("load", "load", {"shortterm": 0.7, "midterm": 0.6, "longterm": 0.5}),
        one("interface", "if_octets", {"rx": at * 9_000, "tx": at * 4_000}, "eth0"),
        one("disk", "disk_octets", {"read": at * 7_000, "write": at * 8_000}, "sda"),
    ]  # fmt: skip
    return json.dumps(lists).encode()


DATABASE = {
    "numbackends": 7, "xact_commit": 500, "xact_rollback": 2, "blks_hit": 9_000, "blks_read": 100, "tup_fetched": 800,
    "tup_inserted": 40, "tup_updated": 30, "tup_deleted": 5, "deadlocks": 1, "temp_bytes": 4_096,
}  # fmt: skip


def _database(at: int) -> dict[str, int]:
    return {name: value if name == "numbackends" else at * value for name, value in DATABASE.items()}


def _postgres_agent(seconds: int, at: int) -> bytes:
    points = [
        Point("postgresql_database", {**_database(at), "size_bytes": GB}, {"database": "shop"}),
        Point("postgresql_connections", {"connections": 5, "oldest_transaction_s": 1.5}, {"state": "active"}),
        Point("postgresql", {"uptime_s": 5_000, "max_connections": 100, "in_recovery": 0, "locks_waiting": 1}, {}),
    ]
    return _lines(points, seconds)


def _postgres_telegraf(seconds: int, at: int) -> bytes:
    return _lines([Point("postgresql", _database(at), {"host": "db-1", "db": "shop", "server": "db-1:5432"})], seconds)


def _postgres_exporter(seconds: int, at: int) -> bytes:
    return _text(
        {
            **{f'pg_stat_database_{name}{{datname="shop"}}': value for name, value in _database(at).items()},
            "pg_up": 1,
            "pg_settings_max_connections": 100,
            'pg_locks_count{datname="shop",mode="accesssharelock"}': 3,
            'pg_stat_activity_count{datname="shop",state="active"}': 5,
            'pg_database_size_bytes{datname="shop"}': GB,
        },
        "db-1:9187",
        seconds,
    )


def _rabbitmq_agent(seconds: int, at: int) -> bytes:
    """What the collector makes of the answers of the management interface."""
    stats = {"publish": at * 90, "deliver_get": at * 80, "ack": at * 70}
    depths = {"messages": 12, "messages_ready": 9, "messages_unacknowledged": 3}
    overview = {
        "cluster_name": "mq",
        "queue_totals": depths,
        "object_totals": {"queues": 1, "consumers": 2},
        "message_stats": stats,
    }
    node = {"name": "mq-1", "mem_used": GB, "mem_limit": 4 * GB, "disk_free": 9 * GB, "fd_used": 50, "fd_total": 1_000,
            "running": True, "mem_alarm": False, "disk_free_alarm": False}  # fmt: skip
    queue = {"name": "orders", "vhost": "v", **depths, "consumers": 2, "message_stats": stats}
    points = [rabbitmq.overview_point(overview), rabbitmq.node_point(node, "mq"), rabbitmq.queue_point(queue, "mq")]
    return _lines(points, seconds)


def _rabbitmq_plugin(seconds: int, at: int) -> bytes:
    acts = ("received", "delivered", "acknowledged", "redelivered")
    return _text(
        {
            **{f'rabbitmq_global_messages_{act}_total{{protocol="amqp091"}}': at * 90 for act in acts},
            "rabbitmq_queue_messages_ready": 9,
            "rabbitmq_queue_messages_unacked": 3,
            "rabbitmq_connections": 4,
            "rabbitmq_consumers": 2,
            "rabbitmq_channels": 6,
            "rabbitmq_process_resident_memory_bytes": GB,
            "rabbitmq_disk_space_available_bytes": 9 * GB,
            "rabbitmq_process_open_fds": 50,
        },
        "mq-1:15692",
        seconds,
    )


def _nginx(seconds: int, at: int) -> bytes:
    """What the collector makes of the page stub_status."""
    page = (
        f"Active connections: 9\nserver accepts handled requests\n {1000 + at * 20} {1000 + at * 20} {5000 + at * 90}\n"
        "Reading: 1 Writing: 3 Waiting: 5\n"
    )
    return _lines(nginx.points(page, "http://web-1/status"), seconds)


def _nginx_exporter(seconds: int, at: int) -> bytes:
    states = {"active": 9, "reading": 1, "writing": 3, "waiting": 5, "accepted": at * 20, "handled": at * 20}
    connections = {f"nginx_connections_{name}": value for name, value in states.items()}
    return _text({**connections, "nginx_http_requests_total": at * 90}, "web-1:9113", seconds)


SENDERS: dict[str, tuple[Moment, Callable[..., Parsed]]] = {
    "host-agent": (_agent, influx.parse),
    "host-telegraf": (_telegraf, influx.parse),
    "host-node": (_node, exposition.parse),
    "host-otel": (_otel, otlp.parse),
    "host-collectd": (_collectd, collectd.parse),
    "postgresql-agent": (_postgres_agent, influx.parse),
    "postgresql-telegraf": (_postgres_telegraf, influx.parse),
    "postgresql-exporter": (_postgres_exporter, exposition.parse),
    "rabbitmq-agent": (_rabbitmq_agent, influx.parse),
    "rabbitmq-prometheus": (_rabbitmq_plugin, exposition.parse),
    "nginx-status": (_nginx, influx.parse),
    "nginx-exporter": (_nginx_exporter, exposition.parse),
}


def messages(sender: str, now_ms: int) -> Iterator[Parsed]:
    """Read the bodies of a sender up to a time."""
    body_of, parse = SENDERS[sender]
    for at in range(STEPS):
        seconds = now_ms // 1000 - (STEPS - at) * STEP_S
        parsed = parse(body_of(seconds, at), now_ms=now_ms)
        assert len(parsed.ts) > 0
        assert np.all(parsed.ts == seconds * 1000)
        yield parsed
