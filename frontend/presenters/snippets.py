"""The snippets that show how to send data by each method, with the server's address and the token filled in.

``SEND_METHODS`` is the page's list, the usual methods first. ``arrivals`` of a method are the names under which
``ingest.accept.arrivals`` records that data arrived by it. A snippet contains ``BASE`` (the server's address),
``TOKEN``, for jobs ``KEY``, and where it fetches the agent ``SHA256``; ``fill_snippet`` replaces them. Pure.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines to copy; ``place`` says where they go."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class SendMethod:
    """One method of sending data."""

    name: str
    title: str
    about: str
    snippets: tuple[Snippet, ...]
    arrivals: tuple[str, ...]


SEND_METHODS = (
    SendMethod(
        "agent",
        "This machine",
        "Our agent, by one line: the host, its containers and services. Keeps data while the server is away.",
        (
            Snippet(
                "Shell, on the host to monitor",
                """\
curl -fsSO BASE/agent.pyz && echo 'SHA256  agent.pyz' | sha256sum -c && \\
SPM_AGENT_URL=BASE SPM_AGENT_TOKEN=TOKEN python3 agent.pyz""",
            ),
            Snippet(
                "As a service: /etc/systemd/system/spm-agent.service",
                """\
python3 agent.pyz install --print --url BASE""",
            ),
        ),
        ("agent",),
    ),
    SendMethod(
        "curl",
        "curl",
        "A single number from a shell or a script.",
        (
            Snippet(
                "Shell: JSON",
                """\
curl -i BASE/api/v1/metrics \\
  -H 'Authorization: Bearer TOKEN' \\
  -H 'Content-Type: application/json' \\
  -d '{"samples": [{"metric": "room_temperature", "value": 21.5,
                    "tags": {"host": "'"$(hostname)"'", "room": "kitchen"}}]}'""",
            ),
            Snippet(
                "Shell: Influx line protocol",
                """\
curl -i 'BASE/write?precision=s' \\
  -H 'Authorization: Token TOKEN' \\
  --data-binary "room,host=$(hostname),room=kitchen temperature=21.5,humidity=48i $(date +%s)\"""",
            ),
        ),
        ("json", "influx"),
    ),
    SendMethod(
        "telegraf",
        "Telegraf",
        "And every other program that writes to InfluxDB v1 or v2.",
        (
            Snippet(
                "telegraf.conf",
                """\
[[outputs.influxdb_v2]]
  urls = ["BASE"]
  token = "TOKEN"
  organization = "any"
  bucket = "any\"""",
            ),
        ),
        ("telegraf",),
    ),
    SendMethod(
        "prometheus",
        "Prometheus",
        "By remote write; also for vmagent and Grafana Alloy.",
        (
            Snippet(
                "prometheus.yml",
                """\
remote_write:
  - url: BASE/api/v1/write
    authorization:
      credentials: TOKEN""",
            ),
            Snippet(
                "vmagent",
                """\
vmagent -promscrape.config=scrape.yml \\
  -remoteWrite.url=BASE/api/v1/write -remoteWrite.bearerToken=TOKEN""",
            ),
        ),
        ("prometheus", "remote_write"),
    ),
    SendMethod(
        "otlp",
        "OpenTelemetry",
        "SDKs and the collector, OTLP over HTTP.",
        (
            Snippet(
                "Environment of a program with an SDK",
                """\
export OTEL_METRICS_EXPORTER=otlp
export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=BASE/v1/metrics
export OTEL_EXPORTER_OTLP_METRICS_HEADERS='Authorization=Bearer%20TOKEN'""",
            ),
            Snippet(
                "Collector: config.yaml",
                """\
receivers:
  otlp:
    protocols:
      http:
exporters:
  otlphttp:
    metrics_endpoint: BASE/v1/metrics
    headers:
      Authorization: Bearer TOKEN
service:
  pipelines:
    metrics:
      receivers: [otlp]
      exporters: [otlphttp]""",
            ),
        ),
        ("otlp", "collector"),
    ),
    SendMethod(
        "collectd",
        "collectd",
        "Its plug-in write_http.",
        (
            Snippet(
                "collectd.conf",
                """\
LoadPlugin write_http
<Plugin write_http>
  <Node "spm">
    URL "BASE/api/v1/collectd"
    Header "Authorization: Bearer TOKEN"
    Format "JSON"
  </Node>
</Plugin>""",
            ),
        ),
        ("collectd",),
    ),
    SendMethod(
        "ping",
        "Cron jobs",
        "A job reports that it ran; an alert fires if it did not.",
        (
            Snippet(
                "crontab: one line per job",
                """\
0 3 * * *  curl -fsS BASE/ping/KEY/start; /usr/local/bin/backup; curl -fsS BASE/ping/KEY/$?""",
            ),
        ),
        ("ping",),
    ),
    SendMethod(
        "statsd",
        "StatsD and Graphite",
        "A side-car on your host receives them and sends them on with a token.",
        (
            Snippet(
                "Shell: StatsD on 127.0.0.1:8125",
                """\
curl -fsSO BASE/agent.pyz && echo 'SHA256  agent.pyz' | sha256sum -c &&
SPM_AGENT_TOKEN=TOKEN python3 agent.pyz sidecar statsd --url BASE""",
            ),
            Snippet(
                "Shell: Graphite's plain text on 127.0.0.1:2003",
                """\
curl -fsSO BASE/agent.pyz && echo 'SHA256  agent.pyz' | sha256sum -c &&
SPM_AGENT_TOKEN=TOKEN python3 agent.pyz sidecar graphite --url BASE""",
            ),
        ),
        ("statsd", "graphite"),
    ),
    SendMethod(
        "text",
        "Prometheus text",
        "Batch jobs: a body in Prometheus' text format, or a Pushgateway client.",
        (
            Snippet(
                "Shell",
                """\
echo 'backup_bytes{job="nightly"} 123456' | curl -i --data-binary @- \\
  -H 'Authorization: Bearer TOKEN' BASE/api/v1/import/prometheus""",
            ),
        ),
        ("prometheus_text", "import"),
    ),
)
_PLACEHOLDERS = re.compile(r"(?<![A-Z_])(?:BASE|TOKEN|KEY|SHA256)(?![A-Z_])")
NAMES = tuple(method.name for method in SEND_METHODS)


def fill_snippet(text: str, *, base: str, token: str, key: str, sha256: str) -> str:
    """Fill in the real address, token, key and hash of the agent; ``SPM_AGENT_TOKEN`` is a name and stays."""
    values = {"BASE": base, "TOKEN": token, "KEY": key, "SHA256": sha256}
    return _PLACEHOLDERS.sub(lambda match: values[match[0]], text)
