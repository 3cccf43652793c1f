"""What the page "Send data" gives to copy into a shell is run as it stands, and its data is there."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from frontend import snippets
from tests.bench.product import Served
from tests.clients.known import Samples, read
from tests.clients.programs import Running
from tests.stack.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
WITHIN_S = 240


def lines(served: Served, way: str, number: int) -> str:
    """A snippet with the product's own address and token, for the Python that runs the tests."""
    [found] = [each for each in snippets.WAYS if each.name == way]
    base = f"http://127.0.0.1:{served.port}"
    text = snippets.filled(found.snippets[number].text, base=base, token=served.token, key="")
    return text.replace("python3 ", f"{sys.executable} ")


def there(served: Served, metric: str) -> Samples:
    return read(served, f"{metric}[1d]")


@pytest.mark.parametrize(
    ("way", "number", "metric"),
    [("curl", 0, "room_temperature"), ("curl", 1, "room_humidity"), ("text", 0, "backup_bytes")],
)
def test_lines_for_a_shell_send_what_they_say(
    served: Served, tmp_path: Path, way: str, number: int, metric: str
) -> None:
    words = ["sh", "-ec", lines(served, way, number)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HTTP/1.1 2"), done.stdout
    assert wait_until(lambda: len(there(served, metric)) == 1, WITHIN_S), done.stdout


def test_lines_for_our_agent_watch_this_host(served: Served, run: Callable[..., Running]) -> None:
    host = "by-the-snippet"
    told = f"export SPM_AGENT_HOST={host} SPM_AGENT_SPOOL=$PWD/spool SPM_AGENT_PERIOD_S=1 SPM_AGENT_DISCOVER=no\n"
    running = run("agent", "sh", "-c", told + lines(served, "agent", 0))
    assert wait_until(lambda: len(there(served, f'load_load1{{host="{host}"}}')) == 1, WITHIN_S), running.said()
    assert "✓ token" in running.said()  # by the doctor, who is asked first
