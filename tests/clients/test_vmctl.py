"""vmctl, unmodified, moves what other stores hold: an InfluxDB, and a snapshot that Prometheus itself has made.

Prometheus' promtool makes its blocks of known samples, Prometheus takes the snapshot, and vmctl reads it and sends it
to ``/api/v1/import``, both by the commands of the how-to guides. Samples are compared bit by bit.

Debian's vmctl 1.79 stops its workers while up to four series each wait in their queue, and loses these at random, with
VictoriaMetrics as with any other server; its report tells how many samples it has sent. So it runs until one run has
sent all: what came before counts once. Its progress bar needs a terminal, though nobody looks.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.clients.support import influxdb
from tests.clients.support.known import Known, assert_same, by_field, wait_for
from tests.clients.support.programs import Running, program
from tests.servers.processes import wait_until
from tests.servers.product import ROOT, Served, free_port

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000
TRIES = 50  # a third of the runs or so sends all
IN_A_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"


def snapshot(known: Known, folder: Path, run: Callable[..., Running]) -> Path:
    """Returns the folder of a snapshot of a Prometheus that holds the known samples, in blocks of two hours."""
    (folder / "known.txt").write_text(open_metrics(known))
    promtool = program("promtool", "prometheus")
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "known.txt"), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    port = free_port()
    running = run(
        "prometheus",
        program("prometheus", "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-admin-api",
    )
    command = shlex.split(printed("moving.md", "curl -XPOST").replace("localhost:9090", f"127.0.0.1:{port}"))
    answers: list[str] = []

    def taken() -> bool:
        """Whether Prometheus runs and has taken the snapshot."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        answers.append(done.stdout)
        return done.returncode == 0 and done.stdout.startswith("{")  # while it starts, it says so in plain text

    assert wait_until(taken, 60), running.output()
    return folder / "data" / "snapshots" / str(json.loads(answers[-1])["data"]["name"])


def printed(page: str, begin: str) -> str:
    """The command of a how-to guide that begins so."""
    lines = (ROOT / "docs" / "how-to" / page).read_text().splitlines()
    [command] = [line.strip() for line in lines if line.startswith(f"    {begin}")]
    return command


def open_metrics(known: Known) -> str:
    """Returns the known samples as OpenMetrics: a family after the other, of each series its samples in their order."""
    text = []
    for field in range(known.values.shape[2]):
        text.append(f"# TYPE {known.name}_f{field} gauge\n")
        for host in range(known.values.shape[1]):
            name = f'{known.name}_f{field}{{host="h{host}"}}'
            values, times = known.values[:, host, field].tolist(), known.ts[:, host].tolist()
            pairs = zip(values, times, strict=True)
            text += [f"{name} {value!r} {ms // 1000}.{ms % 1000:03}\n" for value, ms in pairs]
    return "".join([*text, "# EOF\n"])


def labelled(name: str, field: str, host: str) -> Mapping[str, str]:
    """How a moved sample is read back: with the label that vmctl asks for."""
    return {**by_field(name, field, host), "origin": "old_prometheus"}


def test_vmctl_moves_every_sample_of_a_snapshot_of_prometheus(
    served: Served, run: Callable[..., Running], tmp_path: Path
) -> None:
    known = Known.make("vmctl", step_ms=180_000)  # of five hours: several blocks
    own = {"data/snapshots/NAME": str(snapshot(known, tmp_path, run))}
    outputs = send_all(
        served, run, printed("sending.md", "vmctl prometheus"), own, "--vm-extra-label=origin=old_prometheus"
    )
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples(labelled)) == SAMPLES, outputs


def test_vmctl_moves_every_sample_of_an_influxdb(served: Served, run: Callable[..., Running], tmp_path: Path) -> None:
    known = Known.make("influx_moved")
    _, port = influxdb.filled(known, run, tmp_path)
    own = {"localhost:8086": f"127.0.0.1:{port}"}
    outputs = send_all(served, run, printed("moving.md", "vmctl influx"), own)
    stored = wait_for(served, known.name, SAMPLES)
    assert (
        assert_same(stored, known.samples(lambda *names: {**by_field(*names), "db": influxdb.DATABASE})) == SAMPLES
    ), outputs


def send_all(
    served: Served, run: Callable[..., Running], text: str, own: Mapping[str, str], *options: str
) -> list[str]:
    """Run a command of a guide until one run has sent all samples; returns the outputs."""
    for word, ours in {**own, "localhost:8000": f"127.0.0.1:{served.port}", "TOKEN": served.token}.items():
        text = text.replace(word, ours)
    command = [program("vmctl", "victoria-metrics"), *shlex.split(text)[1:], *options]
    outputs = []
    for number in range(TRIES):
        moving = run(f"vmctl-{command[1]}{number}", sys.executable, "-c", IN_A_TERMINAL, *command)
        assert moving.ended(120), moving.output()
        outputs.append(moving.output())
        if f"total samples: {SAMPLES};" in outputs[-1]:
            break
    assert [output for output in outputs if "Import finished!" not in output] == []
    return outputs
