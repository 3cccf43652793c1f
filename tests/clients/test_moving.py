"""The commands of docs/moving.md, run as they are printed, with the other store's own program where it is installed.

Only ports and the token are the test's own. What OpenTSDB and InfluxDB print is written here by their documentation.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.clients.support.apps import new_apps
from tests.clients.support.known import Known, assert_same, read, wait_for
from tests.clients.support.programs import find
from tests.servers.processes import wait_until
from tests.servers.product import ROOT, Served, start_peer

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = (ROOT / "docs" / "moving.md").read_text()


def printed(heading: str, begin: str) -> str:
    """The command below a heading of the page that begins so, with all of its lines."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", part, re.MULTILINE)
    [block] = [block for block in blocks if block.startswith(f"    {begin}")]
    return "\n".join(line[4:] for line in block.splitlines())


def shell(command: str, app: Served, folder: Path) -> str:
    """Run a command of the page; what it prints."""
    own = command.replace("localhost:8000", f"127.0.0.1:{app.port}")
    environment = {**os.environ, "TOKEN": app.token}
    done = subprocess.run(
        ["sh", "-c", own], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def app(served: Served) -> Served:
    """A new app."""
    [app] = new_apps(served)
    return app


def test_what_victoriametrics_holds_is_moved_bit_by_bit(app: Served, tmp_path: Path) -> None:
    peer = start_peer(tmp_path / "peer")
    if peer is None:
        pytest.skip("victoria-metrics is not installed")
    known = Known.make("moved", plain=True)  # VictoriaMetrics rounds what needs more digits
    try:
        connection = peer.connection()
        assert peer.push(connection, known.lines("").encode()) == 204
        command = printed("VictoriaMetrics", "curl").replace("localhost:8428", f"127.0.0.1:{peer.port}")
        connection.request("GET", "/internal/force_flush")
        connection.getresponse().read()
        assert shell(command, app, tmp_path) == ""
    finally:
        peer.stop()
    assert assert_same(wait_for(app, known.name, len(known)), known.samples()) == len(known)


def test_lines_that_influxdb_exports_are_moved_by_parts(app: Served, tmp_path: Path) -> None:
    now_s = int(time.time())
    lines = [f"room,floor=2 temperature={n % 100} {now_s - 30_000 + n}000000000" for n in range(25_000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    assert shell(printed("InfluxDB", "split"), app, tmp_path) == ""
    assert wait_until(lambda: _count(app, "room_temperature") == 25_000, 60)


def test_points_that_opentsdb_prints_are_moved_with_their_tags(app: Served, tmp_path: Path) -> None:
    now_s = int(time.time())
    points = [f"sys.cpu.user {now_s - n} {n}.5 host=web-{n % 2} cpu=0" for n in range(100)]
    (tmp_path / "points.txt").write_text(
        "\n".join([*points, f"sys.cpu.user {now_s - 200}500 7 host=web-0 cpu=0"]) + "\n"
    )
    assert shell(printed("OpenTSDB", "awk"), app, tmp_path) == ""
    assert wait_until(lambda: _count(app, '{"sys.cpu.user", host="web-1", cpu="0"}') == 50, 60)
    assert _count(app, '{"sys.cpu.user", host="web-0"}') == 51


def test_files_of_whisper_are_moved_with_their_names(app: Served, tmp_path: Path) -> None:
    create, update = find("whisper-create.py"), find("whisper-update.py")
    if create is None or update is None:
        pytest.skip("whisper is not installed (pip install whisper)")
    file, now_s = tmp_path / "servers" / "web-1" / "load.wsp", int(time.time())
    file.parent.mkdir(parents=True)
    subprocess.run([create, str(file), "10:360"], check=True, capture_output=True)
    points = [f"{now_s - 10 * n}:{n}.25" for n in range(1, 21)]
    subprocess.run([update, str(file), *points], check=True, capture_output=True)
    assert shell(printed("Graphite", "find"), app, tmp_path) == ""
    assert wait_until(lambda: _count(app, '{"servers.web-1.load"}') == 20, 60)


def _count(app: Served, selector: str) -> int:
    return sum(len(samples) for samples in read(app, f"{selector}[1d]").values())
