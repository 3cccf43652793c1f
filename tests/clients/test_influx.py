"""Clients of Influx' line protocol: Telegraf, both Python clients, curl. 10,000 samples each, read back bit for bit."""

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import influxdb_client_3
import pytest
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write.point import Point
from influxdb_client.client.write_api import SYNCHRONOUS, WriteOptions

from tests.clients import telegraf
from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.programs import Running, program
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000
TIMEOUT_MS = 60_000
PointT = TypeVar("PointT", Point, influxdb_client_3.Point)


@pytest.mark.timeout(1200)  # its first run builds Telegraf
def test_telegraf_delivers_every_sample_by_each_of_its_outputs(
    served: Served, run: Callable[..., Running], tmp_path: Path
) -> None:
    known = {output: Known.make(f"telegraf_{output}") for output in ("v1", "v2", "http")}
    (tmp_path / "lines").write_text("".join(each.lines() for each in known.values()))
    outputs = (telegraf.influxdb(served), telegraf.influxdb_v2(served), telegraf.http(served))
    config = telegraf.config(tmp_path / "lines", outputs)
    (tmp_path / "telegraf.conf").write_text(config)
    running = run("telegraf", telegraf.binary(), "--config", tmp_path / "telegraf.conf")
    for output, each in known.items():
        stored = wait_for(served, each.name, SAMPLES)
        assert assert_same(stored, each.samples()) == SAMPLES, (output, running.output())


@pytest.mark.parametrize("options", ["synchronous", "batching"])
def test_influxdb_client_delivers_every_sample(served: Served, options: str) -> None:
    known = Known.make(f"influx2_{options}")
    address = f"http://127.0.0.1:{served.port}"
    form = SYNCHRONOUS if options == "synchronous" else WriteOptions(batch_size=500)
    with (
        InfluxDBClient(
            address, served.token, org="any", timeout=TIMEOUT_MS, enable_gzip=options == "batching"
        ) as client,
        client.write_api(write_options=form) as api,
    ):
        assert client.ping()
        for step in range(known.steps):
            api.write("any", record=[_point(Point, known.name, *r) for r in known.reports(step)])
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples()) == SAMPLES


def test_influxdb3_python_delivers_every_sample(served: Served) -> None:
    known = Known.make("influx3")
    address = f"http://127.0.0.1:{served.port}"
    options = influxdb_client_3.write_client_options(write_options=influxdb_client_3.SYNCHRONOUS)
    with influxdb_client_3.InfluxDBClient3(
        address, token=served.token, database="any", write_client_options=options, write_timeout=TIMEOUT_MS
    ) as client:
        for step in range(known.steps):
            client.write([_point(influxdb_client_3.Point, known.name, *r) for r in known.reports(step)])
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples()) == SAMPLES


@pytest.mark.parametrize("how", ["plain", "gzip", "chunked"])
def test_curl_delivers_every_sample(served: Served, how: str, tmp_path: Path) -> None:
    known = Known.make(f"curl_{how}")
    body = known.lines().encode()
    (tmp_path / "body").write_bytes(gzip.compress(body) if how == "gzip" else body)
    extra = {"plain": [], "gzip": ["-H", "Content-Encoding: gzip"], "chunked": ["-H", "Transfer-Encoding: chunked"]}
    done = subprocess.run(
        [
            program("curl", "curl"),
            "-sS",
            "--fail-with-body",
            "-H",
            f"Authorization: Token {served.token}",
            *extra[how],
            "--data-binary",
            f"@{tmp_path / 'body'}",
            f"http://127.0.0.1:{served.port}/write",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples()) == SAMPLES


def _point(kind: type[PointT], name: str, host: str, ms: int, fields: dict[str, float]) -> PointT:
    point = kind(name)
    point.tag("host", host)
    for field, value in fields.items():
        point.field(field, value)
    point.time(ms * 1_000_000)
    return point
