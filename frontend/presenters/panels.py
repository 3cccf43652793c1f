"""The charts of the host page and of the system page: titles, expressions, units. For our agent and Telegraf. Pure."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a page."""

    title: str
    expr: str
    unit: str  # percent, bytes, bytes/s, or "" for plain numbers


BUSY = "avg by (host) (avg_over_time(cpu_usage_total[$window]))"  # the first expression of the chart page


def cpu_by_host(window: str = "$window", among: str = "") -> str:
    """Write the expression of CPU use per host, among all or some; Telegraf reports the idle share instead."""
    ours = f"avg by (host) (avg_over_time(cpu_usage_total{{{among}}}[{window}]))"
    theirs = f'100 - avg by (host) (avg_over_time(cpu_usage_idle{{cpu="cpu-total",{among}}}[{window}]))'
    return f"{ours} or ({theirs})"


def memory_by_host(window: str = "$window", among: str = "") -> str:
    """Write the expression of the used share of main memory per host, among all or some."""
    return f"avg by (host) (avg_over_time(mem_used_percent{{{among}}}[{window}]))"


def disk_by_host(window: str = "$window") -> str:
    """Write the expression of the fullest disk of each host, in percent."""
    return f"max by (host) (last_over_time(disk_used_percent[{window}]))"


def load_by_host(window: str = "$window") -> str:
    """Write the expression of the load of one minute of each host."""
    return f'max by (host) (last_over_time({{__name__=~"(load|system)_load1"}}[{window}]))'


def top_panels() -> list[Panel]:
    """List the charts of the home page, which draw the highest series and the range of all others."""
    return [Panel("CPU", cpu_by_host(), "percent"), Panel("Memory", memory_by_host(), "percent")]


def host_panels(host: str) -> list[Panel]:
    """List the charts of one host."""
    at = f"host={quote(host)}"
    kinds = f'{{__name__=~"cpu_usage_(user|system|iowait|steal)",cpu=~"(cpu-total)?",{at}}}'
    memory = f'{{__name__=~"mem_(used|available|total)",{at}}}'
    load = f'{{__name__=~"(load|system)_load(1|5|15)",{at}}}'
    processes = f'{{__name__=~"processes_(total|running)",{at}}}'
    return [
        Panel("CPU by kind of work", f"avg by (__name__) (avg_over_time({kinds}[$window]))", "percent"),
        Panel("CPU, highest", f"max by (host) (max_over_time(cpu_usage_total{{{at}}}[$window]))", "percent"),
        Panel("Memory", f"max by (__name__) (last_over_time({memory}[$window]))", "bytes"),
        Panel("Load", f"max by (__name__) (last_over_time({load}[$window]))", ""),
        Panel("Network in", f"sum by (interface) (rate(net_bytes_recv{{{at}}}[$__rate_interval]))", "bytes/s"),
        Panel("Network out", f"sum by (interface) (rate(net_bytes_sent{{{at}}}[$__rate_interval]))", "bytes/s"),
        Panel("Disk read", f"sum by (name) (rate(diskio_read_bytes{{{at}}}[$__rate_interval]))", "bytes/s"),
        Panel("Disk written", f"sum by (name) (rate(diskio_write_bytes{{{at}}}[$__rate_interval]))", "bytes/s"),
        Panel("Disk space used", f"max by (path) (last_over_time(disk_used_percent{{{at}}}[$window]))", "percent"),
        Panel("Processes", f"max by (__name__) (last_over_time({processes}[$window]))", ""),
    ]


def system_panels() -> list[Panel]:
    """List the charts of the product's own app: throughput, backlogs, durations and failures."""

    def percentile_99(name: str, by: str = "") -> str:
        labels = f"{by}, le" if by else "le"
        return f"histogram_quantile(0.99, sum by ({labels}) (rate({name}_bucket[$__rate_interval])))"

    return [
        Panel("Samples accepted a second", "sum by (process) (rate(spm_accepted_samples_total[$__rate_interval]))", ""),
        Panel("Samples not yet stored, by app", 'sum by (app) (spm_app_samples{outcome="unsettled"})', ""),
        Panel("Lag of watermarks, by app (s)", "max by (app) (max_over_time(spm_app_mark_lag_seconds[$window]))", ""),
        Panel("Dead letters, by app", "max by (app) (max_over_time(spm_app_dead_letters[$window]))", ""),
        Panel("Waiting in the queue", "max by (queue) (max_over_time(spm_worker_queue_depth[$window]))", ""),
        Panel(
            "Oldest unacknowledged message (s)", "max(max_over_time(spm_worker_oldest_unacked_seconds[$window]))", ""
        ),
        Panel("Batch fill (1 is full)", f"{_rate('batch_fill_total')} / {_rate('batches_total')}", ""),
        Panel("Redelivered messages a second", _rate("redelivered_total"), ""),
        Panel("Time to write a batch, 99 % (s)", percentile_99("spm_worker_write_seconds", "process"), ""),
        Panel("Requests a second, by status", "sum by (code) (rate(spm_http_requests_total[$__rate_interval]))", ""),
        Panel("Time of 99 % of requests (s)", percentile_99("spm_http_request_duration_seconds", "view"), ""),
        Panel("Time until durable, 99 % (s)", percentile_99("spm_publish_duration_seconds"), ""),
        Panel("One read of the store, 99 % (s)", percentile_99("spm_store_probe_duration_seconds", "process"), ""),
        Panel("Tasks, 99 % (s)", percentile_99("spm_task_duration_seconds", "task"), ""),
        Panel("Duration of the last run (s)", "max by (kind) (spm_run_last_duration_seconds)", ""),
        Panel("Memory", "max by (process) (process_resident_memory_bytes)", "bytes"),
        Panel("CPU (s per s)", "sum by (process) (rate(process_cpu_seconds_total[$__rate_interval]))", ""),
    ]


def _rate(name: str) -> str:
    """Write the expression of the growth of a worker's counter."""
    return f"sum by (process) (rate(spm_worker_{name}[$__rate_interval]))"


def quote(text: str) -> str:
    """Write a PromQL string; JSON's quoting is a subset of Go's."""
    return json.dumps(text, ensure_ascii=False)
