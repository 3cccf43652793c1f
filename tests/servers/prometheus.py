"""A real Prometheus as judge: started on this machine, given samples by remote write, asked over HTTP.

`SPM_PROMETHEUS` names another binary than the one on the path, `SPM_PROMETHEUS_URL` a judge that runs already and holds
the same data (seed and all). Nothing is left running: use it as a context.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam

from tests.servers.processes import Process, wait_until

Labels = dict[str, str]
Answer = dict[tuple[tuple[str, str], ...], dict[int, float]]

# What Prometheus 3 does when it is asked to, and we always.
_FEATURES = (
    "promql-experimental-functions",
    "promql-delayed-name-removal",
    "promql-duration-expr",
    "promql-extended-range-selectors",
    "promql-binop-fill-modifiers",
)


class Refused(Exception):
    """The judge does not answer a query; its words."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Somewhere that answers like Prometheus."""

    url: str
    modern: bool

    def ask(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Answer:
        """Values by series and time; `Refused` where it has none."""
        form = {"query": expr, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
        data = urllib.parse.urlencode(form).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query_range", data, timeout=60) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()[:500]) from error
        return {
            tuple(sorted(series["metric"].items())): {
                round(t * 1000): float(value) for t, value in series.get("values") or []
            }
            for series in answer["data"]["result"] or []
        }

    def write(self, data: Sequence[tuple[Labels, list[tuple[int, float]]]]) -> None:
        """Remote write, series by series."""
        for at in range(0, len(data), 20):
            body = b"".join(_field(1, _series(labels, points)) for labels, points in data[at : at + 20])
            request = urllib.request.Request(f"{self.url}/api/v1/write", bytes(cramjam.snappy.compress_raw(body)))
            request.add_header("Content-Encoding", "snappy")
            request.add_header("Content-Type", "application/x-protobuf")
            request.add_header("X-Prometheus-Remote-Write-Version", "0.1.0")
            urllib.request.urlopen(request, timeout=60).close()


def binary() -> str | None:
    """The Prometheus that is to judge, if there is one."""
    return os.environ.get("SPM_PROMETHEUS") or shutil.which("prometheus")


def is_modern() -> bool:
    """Whether the judge is a Prometheus 3."""
    program = binary()
    return bool(os.environ.get("SPM_PROMETHEUS_URL")) or (program is not None and _major(program) >= 3)


@contextmanager
def judging(folder: Path, port: int, data: Sequence[tuple[Labels, list[tuple[int, float]]]]) -> Iterator[Judge]:
    """A judge that has been given the data."""
    if os.environ.get("SPM_PROMETHEUS_URL"):
        yield Judge(os.environ["SPM_PROMETHEUS_URL"], modern=True)
        return
    program = binary()
    assert program, "BUG: asked for a judge without looking whether there is one"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    process = Process("prometheus", folder)
    modern = is_modern()
    features = [f"--enable-feature={','.join(_FEATURES)}"] if modern else []
    process.start(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--storage.tsdb.retention.time=100y",
            "--query.lookback-delta=5m",
            "--log.level=warn",
            *features,
        ],
        dict(os.environ),
    )
    judge = Judge(f"http://127.0.0.1:{port}", modern=modern)
    try:
        assert wait_until(lambda: _is_ready(judge.url), 60), process.log.read_text()
        judge.write(data)
        yield judge
    finally:
        process.stop()


def _major(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=30)
    answer = re.search(r"version (\d+)\.", said.stdout + said.stderr)
    return int(answer[1]) if answer else 0


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _series(labels: Labels, points: list[tuple[int, float]]) -> bytes:
    named = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in sorted(labels.items())
    )
    return named + b"".join(
        _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(ts)) for ts, value in points
    )


def _field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    answer = bytearray()
    while number > 127:
        answer.append(number & 127 | 128)
        number >>= 7
    return bytes([*answer, number])


def differs(ours: Answer, theirs: Answer, tolerance: float = 1e-9) -> str:
    """Describes what differs; empty when nothing does."""
    if ours.keys() != theirs.keys():
        return (
            f"series only here {sorted(ours.keys() - theirs.keys())}, only there {sorted(theirs.keys() - ours.keys())}"
        )
    for key, points in theirs.items():
        if ours[key].keys() != points.keys():
            return f"{key}: other times: {sorted(ours[key].keys() ^ points.keys())[:5]}"
        for t, value in points.items():
            if not _close(ours[key][t], value, tolerance):
                return f"{key} at {t}: {ours[key][t]!r} here, {value!r} there"
    return ""


def _close(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def answer_of(result: Any) -> Answer:
    """The engine's result in the same form."""
    answer = {
        tuple(sorted(labels.items())): {
            int(t): float(value) for t, value, there in zip(result.times, values, present, strict=True) if there
        }
        for labels, values, present in zip(result.labels, result.values, result.present, strict=True)
    }
    assert len(answer) == len(result.labels), f"BUG: a series stands twice in an answer: {list(result.labels)}"
    return answer
