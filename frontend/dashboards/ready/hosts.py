"""Ready dashboards of hosts: our agent, Telegraf, node_exporter, OpenTelemetry's host metrics, collectd. Pure."""

from frontend.dashboards.document import PanelSpec
from frontend.dashboards.ready.form import ReadyDashboard, chart, choice, stat

_HOST = 'host=~"$host"'
_AT = 'instance=~"$instance"'
_REAL = 'fstype!~"tmpfs|ramfs|overlay|squashfs|devtmpfs"'


_STATE_USED, _TYPE_USED, _BUSY = 'state="used"', 'type="used"', f'type!="idle",{_HOST}'


def _over(name: str, matchers: str) -> str:
    return f"{name}{{{matchers}}}[$window]"


def _rate(name: str, matchers: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}{{{matchers}}}[$__rate_interval]))"


def _work_and_traffic(cpu: str, load: str) -> list[PanelSpec]:
    """Return the panels that Telegraf and the agent share: ``cpu`` matches whole hosts, ``load`` is a metric."""
    return [
        chart(
            "CPU by kind of work",
            *(
                (f"avg(avg_over_time({_over(f'cpu_usage_{kind}', cpu)}))", kind)
                for kind in ("user", "system", "iowait", "steal")
            ),
            unit="percent",
            kind="area",
        ),
        chart(
            "Memory", (f"max by (host) (max_over_time({_over('mem_used_percent', _HOST)}))", "{{host}}"), unit="percent"
        ),
        chart("Load", (f"max by (host) (max_over_time({_over(load, _HOST)}))", "{{host}}")),
        chart(
            "Network",
            (_rate("net_bytes_recv", _HOST, "host"), "{{host}} in"),
            (_rate("net_bytes_sent", _HOST, "host"), "{{host}} out"),
            unit="bytes/s",
        ),
        chart(
            "Disk reads and writes",
            (_rate("diskio_read_bytes", _HOST, "host"), "{{host}} read"),
            (_rate("diskio_write_bytes", _HOST, "host"), "{{host}} written"),
            unit="bytes/s",
        ),
    ]


AGENT = ReadyDashboard(
    "host-agent",
    "Hosts",
    "CPU, memory, disks and network of the hosts that run the agent.",
    ("cpu_usage_total", "load_load1", "mem_used_percent"),
    [choice("host", "Host", "label_values(load_load1, host)")],
    [
        stat("Hosts", f"count(cpu_usage_total{{{_HOST}}})"),
        stat("CPU", f"avg(avg_over_time({_over('cpu_usage_total', _HOST)}))", "percent"),
        stat("Fullest memory", f"max(mem_used_percent{{{_HOST}}})", "percent"),
        stat("Fullest disk", f"max(disk_used_percent{{{_HOST}}})", "percent"),
        chart("CPU", (f"avg by (host) (avg_over_time({_over('cpu_usage_total', _HOST)}))", "{{host}}"), unit="percent"),
        *_work_and_traffic(_HOST, "load_load1"),
        chart(
            "Disk space",
            (f"max by (host, path) (last_over_time({_over('disk_used_percent', _HOST)}))", "{{host}} {{path}}"),
            unit="percent",
            kind="toplist",
        ),
        chart("Processes", (f"max by (host) (last_over_time({_over('processes_total', _HOST)}))", "{{host}}")),
    ],
)

_CPU = f'cpu="cpu-total",{_HOST}'
TELEGRAF = ReadyDashboard(
    "host-telegraf",
    "Hosts, by Telegraf",
    "CPU, memory, disks and network of the hosts that run Telegraf.",
    ("cpu_usage_idle", "system_load1", "mem_used_percent"),
    [choice("host", "Host", "label_values(system_load1, host)")],
    [
        stat("Hosts", f"count(system_load1{{{_HOST}}})"),
        stat("CPU", f"100 - avg(avg_over_time({_over('cpu_usage_idle', _CPU)}))", "percent"),
        stat("Fullest memory", f"max(mem_used_percent{{{_HOST}}})", "percent"),
        stat("Fullest disk", f"max(disk_used_percent{{{_HOST}}})", "percent"),
        chart(
            "CPU",
            (f"100 - avg by (host) (avg_over_time({_over('cpu_usage_idle', _CPU)}))", "{{host}}"),
            unit="percent",
        ),
        *_work_and_traffic(_CPU, "system_load1"),
        chart(
            "Disk space",
            (f"max by (host, path) (last_over_time({_over('disk_used_percent', _HOST)}))", "{{host}} {{path}}"),
            unit="percent",
            kind="toplist",
        ),
        chart(
            "Swap", (f"max by (host) (last_over_time({_over('swap_used_percent', _HOST)}))", "{{host}}"), unit="percent"
        ),
        chart("Processes", (f"max by (host) (last_over_time({_over('processes_total', _HOST)}))", "{{host}}")),
        chart(
            "Uptime", (f"max by (host) (last_over_time({_over('system_uptime', _HOST)}))", "{{host}}"), unit="seconds"
        ),
    ],
)

_NODE_IDLE = f'avg by (instance) (rate(node_cpu_seconds_total{{mode="idle",{_AT}}}[$__rate_interval]))'
_NODE_MEMORY = f"(1 - node_memory_MemAvailable_bytes{{{_AT}}} / node_memory_MemTotal_bytes{{{_AT}}})"
_NODE_DISK = f"(1 - node_filesystem_avail_bytes{{{_REAL},{_AT}}} / node_filesystem_size_bytes{{{_REAL},{_AT}}})"
NODE_EXPORTER = ReadyDashboard(
    "host-node",
    "Hosts, by node_exporter",
    "CPU, memory, disks and network of the hosts that run Prometheus' node_exporter.",
    ("node_cpu_seconds_total", "node_memory_MemAvailable_bytes", "node_load1"),
    [choice("instance", "Host", "label_values(node_load1, instance)")],
    [
        stat("Hosts", f"count(node_load1{{{_AT}}})"),
        stat("CPU", f"100 * (1 - avg({_NODE_IDLE}))", "percent"),
        stat("Fullest memory", f"100 * max{_NODE_MEMORY}", "percent"),
        stat("Fullest disk", f"100 * max{_NODE_DISK}", "percent"),
        chart("CPU", (f"100 * (1 - {_NODE_IDLE})", "{{instance}}"), unit="percent"),
        chart(
            "CPU by kind of work",
            (
                f'100 * avg by (mode) (rate(node_cpu_seconds_total{{mode!="idle",{_AT}}}[$__rate_interval]))',
                "{{mode}}",
            ),
            unit="percent",
            kind="area",
        ),
        chart("Memory", (f"100 * max by (instance) {_NODE_MEMORY}", "{{instance}}"), unit="percent"),
        chart("Load", (f"max by (instance) (max_over_time({_over('node_load1', _AT)}))", "{{instance}}")),
        chart(
            "Network",
            (_rate("node_network_receive_bytes_total", f'device!="lo",{_AT}', "instance"), "{{instance}} in"),
            (_rate("node_network_transmit_bytes_total", f'device!="lo",{_AT}', "instance"), "{{instance}} out"),
            unit="bytes/s",
        ),
        chart(
            "Disk reads and writes",
            (_rate("node_disk_read_bytes_total", _AT, "instance"), "{{instance}} read"),
            (_rate("node_disk_written_bytes_total", _AT, "instance"), "{{instance}} written"),
            unit="bytes/s",
        ),
        chart(
            "Disk space",
            (f"100 * max by (instance, mountpoint) {_NODE_DISK}", "{{instance}} {{mountpoint}}"),
            unit="percent",
            kind="toplist",
        ),
        chart(
            "Swap used",
            (f"node_memory_SwapTotal_bytes{{{_AT}}} - node_memory_SwapFree_bytes{{{_AT}}}", "{{instance}}"),
            unit="bytes",
        ),
        chart("Context switches a second", (_rate("node_context_switches_total", _AT, "instance"), "{{instance}}")),
        chart(
            "Uptime", (f"time() - max by (instance) (node_boot_time_seconds{{{_AT}}})", "{{instance}}"), unit="seconds"
        ),
    ],
)

_OTEL_ALL = _rate("system_cpu_time_seconds_total", _AT, "instance")
_OTEL_IDLE = _rate("system_cpu_time_seconds_total", f'state="idle",{_AT}', "instance")
_OTEL_STATES = _rate("system_cpu_time_seconds_total", f'state!="idle",{_AT}', "state")


def _share(name: str, state: str, matchers: str, by: str) -> str:
    """Write how many percent of all its states one has."""
    return f"100 * sum by ({by}) ({name}{{{state},{matchers}}}) / sum by ({by}) ({name}{{{matchers}}})"


OPENTELEMETRY = ReadyDashboard(
    "host-otel",
    "Hosts, by OpenTelemetry",
    "CPU, memory, disks and network by the host metrics of OpenTelemetry's collector.",
    ("system_cpu_time_seconds_total", "system_memory_usage_bytes"),
    [choice("instance", "Host", "label_values(system_memory_usage_bytes, instance)")],
    [
        stat("Hosts", f"count(sum by (instance) (system_memory_usage_bytes{{{_AT}}}))"),
        stat("CPU", f"100 * (1 - avg({_OTEL_IDLE} / {_OTEL_ALL}))", "percent"),
        stat("Fullest memory", f"max({_share('system_memory_usage_bytes', _STATE_USED, _AT, 'instance')})", "percent"),
        stat(
            "Fullest disk",
            f"max({_share('system_filesystem_usage_bytes', _STATE_USED, _AT, 'instance, mountpoint')})",
            "percent",
        ),
        chart("CPU", (f"100 * (1 - {_OTEL_IDLE} / {_OTEL_ALL})", "{{instance}}"), unit="percent"),
        chart(
            "CPU by kind of work",
            (f"100 * {_OTEL_STATES} / scalar(sum({_OTEL_ALL}))", "{{state}}"),
            unit="percent",
            kind="area",
        ),
        chart(
            "Memory",
            (_share("system_memory_usage_bytes", _STATE_USED, _AT, "instance"), "{{instance}}"),
            unit="percent",
        ),
        chart(
            "Load", (f"max by (instance) (max_over_time({_over('system_cpu_load_average_1m', _AT)}))", "{{instance}}")
        ),
        chart(
            "Network",
            *(
                (
                    _rate("system_network_io_bytes_total", f'device!="lo",direction="{way}",{_AT}', "instance"),
                    f"{{{{instance}}}} {name}",
                )
                for way, name in (("receive", "in"), ("transmit", "out"))
            ),
            unit="bytes/s",
        ),
        chart(
            "Disk reads and writes",
            *(
                (
                    _rate("system_disk_io_bytes_total", f'direction="{way}",{_AT}', "instance"),
                    f"{{{{instance}}}} {name}",
                )
                for way, name in (("read", "read"), ("write", "written"))
            ),
            unit="bytes/s",
        ),
        chart(
            "Disk space",
            (
                _share("system_filesystem_usage_bytes", _STATE_USED, _AT, "instance, mountpoint"),
                "{{instance}} {{mountpoint}}",
            ),
            unit="percent",
            kind="toplist",
        ),
        chart(
            "Swap used",
            (f'sum by (instance) (system_paging_usage_bytes{{state="used",{_AT}}})', "{{instance}}"),
            unit="bytes",
        ),
    ],
)

_COLLECTD_IDLE = _rate("cpu", f'type="idle",{_HOST}', "host")
COLLECTD = ReadyDashboard(
    "host-collectd",
    "Hosts, by collectd",
    "CPU, memory, disks and network of the hosts that run collectd.",
    ("load_shortterm", "memory"),
    [choice("host", "Host", "label_values(load_shortterm, host)")],
    [
        stat("Hosts", f"count(load_shortterm{{{_HOST}}})"),
        stat("CPU", f"100 * (1 - avg({_COLLECTD_IDLE} / {_rate('cpu', _HOST, 'host')}))", "percent"),
        stat("Fullest memory", f"max({_share('memory', _TYPE_USED, _HOST, 'host')})", "percent"),
        stat("Fullest disk", f"max({_share('df_df_complex', _TYPE_USED, _HOST, 'host, instance')})", "percent"),
        chart("CPU", (f"100 * (1 - {_COLLECTD_IDLE} / {_rate('cpu', _HOST, 'host')})", "{{host}}"), unit="percent"),
        chart(
            "CPU by kind of work",
            (
                f"100 * {_rate('cpu', _BUSY, 'type')} / scalar(sum({_rate('cpu', _HOST, 'host')}))",
                "{{type}}",
            ),
            unit="percent",
            kind="area",
        ),
        chart("Memory", (_share("memory", _TYPE_USED, _HOST, "host"), "{{host}}"), unit="percent"),
        chart("Load", (f"max by (host) (max_over_time({_over('load_shortterm', _HOST)}))", "{{host}}")),
        chart(
            "Network",
            (_rate("interface_if_octets_rx", f'instance!="lo",{_HOST}', "host"), "{{host}} in"),
            (_rate("interface_if_octets_tx", f'instance!="lo",{_HOST}', "host"), "{{host}} out"),
            unit="bytes/s",
        ),
        chart(
            "Disk reads and writes",
            (_rate("disk_disk_octets_read", _HOST, "host"), "{{host}} read"),
            (_rate("disk_disk_octets_write", _HOST, "host"), "{{host}} written"),
            unit="bytes/s",
        ),
        chart(
            "Disk space",
            (_share("df_df_complex", _TYPE_USED, _HOST, "host, instance"), "{{host}} {{instance}}"),
            unit="percent",
            kind="toplist",
        ),
        chart("Swap used", (f'sum by (host) (swap{{type="used",{_HOST}}})', "{{host}}"), unit="bytes"),
    ],
)
