"""Telegraf, unmodified: built from its Go module, pinned by the go.mod and go.sum of this folder, with a few plugins.

Telegraf's own build tags select the plugins. The program is stored in the user's cache folder under a hash of all its
sources, so that it is built once per machine. ``config`` writes its configuration: it reads lines of a file, and sends
them to the outputs.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.clients.support import golang
from tests.servers.product import Served

HERE = Path(__file__).parent
PACKAGE = "github.com/influxdata/telegraf/cmd/telegraf"
PLUGINS = (
    "inputs.snmp",
    "inputs.tail",
    "parsers.influx",
    "outputs.influxdb",
    "outputs.influxdb_v2",
    "outputs.http",
    "outputs.amqp",
    "serializers.influx",
    "serializers.prometheusremotewrite",
)
GO = "1.25.5"  # as its go.mod wants
_HEAD = """\
[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_batch_size = 1000
  metric_buffer_limit = 200000
  precision = "1ns"
  omit_hostname = true
"""
_TAIL = """\
[[inputs.tail]]
  files = ["{lines}"]
  from_beginning = true
  max_undelivered_lines = 100000
  data_format = "influx"
  path_tag = ""
"""


def binary() -> Path:
    """Returns the path of the program, which it builds if necessary; without Go the test is skipped."""
    made_of = b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum")) + " ".join(PLUGINS).encode()
    return golang.cached_build("telegraf", made_of, _build)


def config(lines: Path, outputs: Sequence[str]) -> str:
    """Its configuration: every line of a file, read once, to these outputs."""
    return agent(_TAIL.format(lines=lines), outputs)


def agent(inputs: str, outputs: Sequence[str]) -> str:
    """A configuration with these inputs, asked each second."""
    return "\n".join([_HEAD, inputs, *outputs])


def influxdb(served: Served, name: str = "telegraf_v1") -> str:
    """The output for Influx 1."""
    return f"""\
[[outputs.influxdb]]
  urls = ["http://127.0.0.1:{served.port}"]
  database = "metrics"
  skip_database_creation = false
  username = "telegraf"
  password = "{served.token}"
  content_encoding = "gzip"
  namepass = ["{name}"]
"""


def influxdb_v2(served: Served, name: str = "telegraf_v2") -> str:
    """The output for Influx 2."""
    return f"""\
[[outputs.influxdb_v2]]
  urls = ["http://127.0.0.1:{served.port}"]
  token = "{served.token}"
  organization = "any"
  bucket = "any"
  namepass = ["{name}"]
"""


def http(served: Served, name: str = "telegraf_http") -> str:
    """The output for plain HTTP, with lines."""
    return f"""\
[[outputs.http]]
  url = "http://127.0.0.1:{served.port}/write"
  data_format = "influx"
  namepass = ["{name}"]
  [outputs.http.headers]
    Authorization = "Bearer {served.token}"
"""


def remote_write(served: Served, name: str = "telegraf_remote") -> str:
    """The output for plain HTTP, with Prometheus' remote write."""
    return f"""\
[[outputs.http]]
  url = "http://127.0.0.1:{served.port}/api/v1/write"
  data_format = "prometheusremotewrite"
  namepass = ["{name}"]
  [outputs.http.headers]
    Authorization = "Bearer {served.token}"
    Content-Type = "application/x-protobuf"
    Content-Encoding = "snappy"
    X-Prometheus-Remote-Write-Version = "0.1.0"
"""


def amqp(broker: str, user: str, secret: str, name: str = "telegraf_amqp") -> str:
    """The output for RabbitMQ, as docs/how-to/full-stack.md tells."""
    return f"""\
[[outputs.amqp]]
  brokers = ["amqp://{broker}/%2f"]
  username = "{user}"
  password = "{secret}"
  exchange = "spm.agents"
  exchange_passive = true
  exchange_type = "x-consistent-hash"
  routing_key = "{user}.telegraf"
  delivery_mode = "persistent"
  data_format = "influx"
  namepass = ["{name}"]
"""


def _build(target: Path) -> None:
    golang.build(HERE, target, PACKAGE, tags=("custom", *PLUGINS), at_least=GO)
