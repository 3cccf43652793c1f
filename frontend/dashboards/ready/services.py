"""Ready dashboards of services: PostgreSQL, RabbitMQ, nginx; by our agent, Telegraf, Prometheus' exporters. Pure."""

from collections.abc import Sequence

from frontend.dashboards.document import PanelSpec
from frontend.dashboards.ready.form import ReadyDashboard, chart, choice, stat


def _rate(name: str, matchers: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}{{{matchers}}}[$__rate_interval]))"


def _databases(prefix: str, database: str, of: str) -> Sequence[PanelSpec]:
    """Write the charts of pg_stat_database, whose columns all senders call alike; ``of`` chooses the databases."""
    legend, hits, reads = f"{{{{{database}}}}}", f"{prefix}blks_hit", f"{prefix}blks_read"
    hit = _rate(hits, of, database)
    return [
        chart("Connections", (f"sum by ({database}) ({prefix}numbackends{{{of}}})", legend), kind="area"),
        chart(
            "Transactions a second",
            (_rate(f"{prefix}xact_commit", of, database), f"{legend} committed"),
            (_rate(f"{prefix}xact_rollback", of, database), f"{legend} rolled back"),
        ),
        chart(
            "Blocks found in the cache",
            (f"100 * {hit} / ({hit} + {_rate(reads, of, database)})", legend),
            unit="percent",
        ),
        chart(
            "Rows a second",
            *(
                (f"sum(rate({prefix}tup_{act}{{{of}}}[$__rate_interval]))", act)
                for act in ("fetched", "inserted", "updated", "deleted")
            ),
        ),
        chart("Deadlocks", (f"sum by ({database}) (increase({prefix}deadlocks{{{of}}}[$__rate_interval]))", legend)),
        chart("Written to temporary files", (_rate(f"{prefix}temp_bytes", of, database), legend), unit="bytes/s"),
    ]


_OURS = 'database=~"$database"'
POSTGRES_AGENT = ReadyDashboard(
    "postgresql-agent",
    "PostgreSQL",
    "Databases, connections and replicas of the PostgreSQL servers that the agent reads.",
    ("postgresql_database_numbackends", "postgresql_max_connections"),
    [choice("database", "Database", "label_values(postgresql_database_numbackends, database)")],
    [
        stat("Connections", "sum(postgresql_connections_connections)"),
        stat(
            "Of those allowed",
            "100 * sum(postgresql_connections_connections) / sum(postgresql_max_connections)",
            "percent",
        ),
        stat("Waiting for locks", "sum(postgresql_locks_waiting)"),
        stat("Oldest transaction", "max(postgresql_connections_oldest_transaction_s)", "seconds"),
        *_databases("postgresql_database_", "database", _OURS),
        chart(
            "Connections by state", ("sum by (state) (postgresql_connections_connections)", "{{state}}"), kind="area"
        ),
        chart("Size", (f"max by (database) (postgresql_database_size_bytes{{{_OURS}}})", "{{database}}"), unit="bytes"),
    ],
)
_THEIRS = 'db=~"$db"'
POSTGRES_TELEGRAF = ReadyDashboard(
    "postgresql-telegraf",
    "PostgreSQL, by Telegraf",
    "Databases of the PostgreSQL servers that Telegraf reads.",
    ("postgresql_numbackends", "postgresql_xact_commit"),
    [choice("db", "Database", "label_values(postgresql_numbackends, db)")],
    [
        stat("Connections", f"sum(postgresql_numbackends{{{_THEIRS}}})"),
        stat("Transactions a second", f"sum(rate(postgresql_xact_commit{{{_THEIRS}}}[$__rate_interval]))"),
        *_databases("postgresql_", "db", _THEIRS),
    ],
)
_EXPORTED = 'datname=~"$datname"'
POSTGRES_EXPORTER = ReadyDashboard(
    "postgresql-exporter",
    "PostgreSQL, by postgres_exporter",
    "Databases of the servers that Prometheus' postgres_exporter reads.",
    ("pg_stat_database_numbackends", "pg_stat_database_xact_commit"),
    [choice("datname", "Database", "label_values(pg_stat_database_numbackends, datname)")],
    [
        stat("Up", "sum(pg_up)"),
        stat("Connections", f"sum(pg_stat_database_numbackends{{{_EXPORTED}}})"),
        stat(
            "Of those allowed", "100 * sum(pg_stat_database_numbackends) / sum(pg_settings_max_connections)", "percent"
        ),
        stat("Locks", f"sum(pg_locks_count{{{_EXPORTED}}})"),
        *_databases("pg_stat_database_", "datname", _EXPORTED),
        chart(
            "Connections by state",
            (f"sum by (state) (pg_stat_activity_count{{{_EXPORTED}}})", "{{state}}"),
            kind="area",
        ),
        chart("Size", (f"max by (datname) (pg_database_size_bytes{{{_EXPORTED}}})", "{{datname}}"), unit="bytes"),
    ],
)

_QUEUE = 'queue=~"$queue"'
RABBITMQ_AGENT = ReadyDashboard(
    "rabbitmq-agent",
    "RabbitMQ",
    "Messages, queues and nodes of the RabbitMQ clusters that the agent reads.",
    ("rabbitmq_messages_ready", "rabbitmq_queue_messages"),
    [choice("queue", "Queue", "label_values(rabbitmq_queue_messages, queue)")],
    [
        stat("Ready", "sum(rabbitmq_messages_ready)"),
        stat("Not acknowledged", "sum(rabbitmq_messages_unacknowledged)"),
        stat("Consumers", "sum(rabbitmq_consumers_total)"),
        stat("Nodes with an alarm", "sum(rabbitmq_node_mem_alarm) + sum(rabbitmq_node_disk_free_alarm)"),
        chart(
            "Messages a second",
            *(
                (f"sum(rate(rabbitmq_{act}_messages[$__rate_interval]))", name)
                for act, name in (("publish", "published"), ("deliver_get", "delivered"), ("ack", "acknowledged"))
            ),
        ),
        chart(
            "Messages waiting",
            ("sum(rabbitmq_messages_ready)", "ready"),
            ("sum(rabbitmq_messages_unacknowledged)", "not acknowledged"),
            kind="area",
        ),
        chart(
            "Longest queues",
            (f"max by (vhost, queue) (rabbitmq_queue_messages{{{_QUEUE}}})", "{{vhost}} {{queue}}"),
            kind="toplist",
        ),
        chart("Length of queues", (f"max by (queue) (rabbitmq_queue_messages{{{_QUEUE}}})", "{{queue}}")),
        chart("Consumers of queues", (f"max by (queue) (rabbitmq_queue_consumers{{{_QUEUE}}})", "{{queue}}")),
        chart(
            "Memory of nodes",
            ("100 * max by (node) (rabbitmq_node_mem_used / rabbitmq_node_mem_limit)", "{{node}}"),
            unit="percent",
        ),
        chart("Free disk of nodes", ("min by (node) (rabbitmq_node_disk_free)", "{{node}}"), unit="bytes"),
        chart(
            "Open files of nodes",
            ("100 * max by (node) (rabbitmq_node_fd_used / rabbitmq_node_fd_total)", "{{node}}"),
            unit="percent",
        ),
    ],
)
RABBITMQ_PLUGIN = ReadyDashboard(
    "rabbitmq-prometheus",
    "RabbitMQ, by its Prometheus plug-in",
    "Messages, connections and nodes, as RabbitMQ itself exposes them.",
    ("rabbitmq_global_messages_received_total", "rabbitmq_queue_messages_ready"),
    [choice("instance", "Node", "label_values(rabbitmq_queue_messages_ready, instance)")],
    [
        stat("Ready", 'sum(rabbitmq_queue_messages_ready{instance=~"$instance"})'),
        stat("Not acknowledged", 'sum(rabbitmq_queue_messages_unacked{instance=~"$instance"})'),
        stat("Connections", 'sum(rabbitmq_connections{instance=~"$instance"})'),
        stat("Consumers", 'sum(rabbitmq_consumers{instance=~"$instance"})'),
        chart(
            "Messages a second",
            *(
                (f'sum(rate(rabbitmq_global_messages_{act}_total{{instance=~"$instance"}}[$__rate_interval]))', act)
                for act in ("received", "delivered", "acknowledged", "redelivered")
            ),
        ),
        chart(
            "Messages waiting",
            ('sum(rabbitmq_queue_messages_ready{instance=~"$instance"})', "ready"),
            ('sum(rabbitmq_queue_messages_unacked{instance=~"$instance"})', "not acknowledged"),
            kind="area",
        ),
        chart(
            "Memory",
            ('max by (instance) (rabbitmq_process_resident_memory_bytes{instance=~"$instance"})', "{{instance}}"),
            unit="bytes",
        ),
        chart(
            "Free disk",
            ('min by (instance) (rabbitmq_disk_space_available_bytes{instance=~"$instance"})', "{{instance}}"),
            unit="bytes",
        ),
        chart("Channels", ('max by (instance) (rabbitmq_channels{instance=~"$instance"})', "{{instance}}")),
        chart("Open files", ('max by (instance) (rabbitmq_process_open_fds{instance=~"$instance"})', "{{instance}}")),
    ],
)

_SERVER = 'server=~"$server"'
NGINX = ReadyDashboard(
    "nginx-status",
    "nginx",
    "Requests and connections of the nginx servers that the agent or Telegraf reads.",
    ("nginx_active", "nginx_requests"),
    [choice("server", "Server", "label_values(nginx_active, server)")],
    [
        stat("Requests a second", f"sum(rate(nginx_requests{{{_SERVER}}}[$__rate_interval]))"),
        stat("Open connections", f"sum(nginx_active{{{_SERVER}}})"),
        stat("Waiting", f"sum(nginx_waiting{{{_SERVER}}})"),
        stat(
            "Dropped in the range",
            f"sum(increase(nginx_accepts{{{_SERVER}}}[$__range]) - increase(nginx_handled{{{_SERVER}}}[$__range]))",
        ),
        chart("Requests a second", (_rate("nginx_requests", _SERVER, "server"), "{{server}}")),
        chart(
            "Connections",
            *((f"sum(nginx_{state}{{{_SERVER}}})", state) for state in ("reading", "writing", "waiting")),
            kind="area",
        ),
        chart("New connections a second", (_rate("nginx_accepts", _SERVER, "server"), "{{server}}")),
        chart(
            "Requests of one connection",
            (
                f"{_rate('nginx_requests', _SERVER, 'server')} / {_rate('nginx_handled', _SERVER, 'server')}",
                "{{server}}",
            ),
        ),
    ],
)
_INSTANCE = 'instance=~"$instance"'
NGINX_EXPORTER = ReadyDashboard(
    "nginx-exporter",
    "nginx, by its Prometheus exporter",
    "Requests and connections of the servers that nginx-prometheus-exporter reads.",
    ("nginx_http_requests_total", "nginx_connections_active"),
    [choice("instance", "Server", "label_values(nginx_connections_active, instance)")],
    [
        stat("Requests a second", f"sum(rate(nginx_http_requests_total{{{_INSTANCE}}}[$__rate_interval]))"),
        stat("Open connections", f"sum(nginx_connections_active{{{_INSTANCE}}})"),
        chart("Requests a second", (_rate("nginx_http_requests_total", _INSTANCE, "instance"), "{{instance}}")),
        chart(
            "Connections",
            *((f"sum(nginx_connections_{state}{{{_INSTANCE}}})", state) for state in ("reading", "writing", "waiting")),
            kind="area",
        ),
        chart("New connections a second", (_rate("nginx_connections_accepted", _INSTANCE, "instance"), "{{instance}}")),
    ],
)
