"""The steps of the container recipe, as deploy/Containerfile has them, in a bare Debian 12: both targets, and programs.

No container engine is needed: ``recipe`` does the steps, and the programs run as the Compose file says: read-only but
for ``/tmp`` and the volume, as the recipe's user, as first process, ended by SIGTERM.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.bare.recipe import Image, build
from tests.e2e.bare.root_file_system import DEBIAN, ROOT, bare, copied, install
from tests.e2e.bare.test_first_lines import PACKAGES, assert_sent_and_read_back
from tests.servers.processes import answers, wait_until
from tests.servers.product import free_port

pytestmark = [pytest.mark.proof, pytest.mark.serial]
RECIPE = (ROOT / "deploy" / "Containerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
_SEEN_S, _GRACE_S = 120, 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where images are built, from a bare Debian with Python."""
    images = tmp_path_factory.mktemp("images")
    install(copied(bare(DEBIAN), images / "debian"), PACKAGES.split())
    yield images
    shutil.rmtree(images)


@pytest.fixture(scope="module")
def volume(folder: Path) -> Path:
    """One volume for both: the full image goes on with what the slim one has."""
    (folder / "volume").mkdir(mode=0o700)
    return folder / "volume"


@contextmanager
def running(image: Image, volume: Path, log: Path, *words: str) -> Iterator[None]:
    """A container's program, while the body runs; then SIGTERM ends it in time."""
    inside = image.inside(first=True, volume=volume, place=image.volume)
    with log.open("wb") as out:
        command = inside.command(*image.entrypoint, *words)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield
        assert process.poll() is None, log.read_text()
        [program] = psutil.Process(process.pid).children()
        program.terminate()
        assert process.wait(_GRACE_S) in (0, 143), log.read_text()
    finally:
        if process.poll() is None:
            for program in psutil.Process(process.pid).children():  # which takes all of its container along
                program.kill()
            process.kill()
            process.wait()


@pytest.mark.parametrize("target", ["slim", "full"])
def test_bare_debian_carries_out_the_steps_of_the_container_recipe(
    target: str, folder: Path, volume: Path, figure: Callable[[str], None]
) -> None:
    began = time.monotonic()
    image = build(RECIPE, target, base=folder / "debian", context=ROOT, folder=folder / target)
    figure(f"{target}: built in {time.monotonic() - began:.0f} s, {_megabytes(image.root):.0f} MB")
    assert not (image.root / "opt/spm/tests").exists()
    assert (image.environ.get("SPM_SPARK_MASTER") == "none") == (target == "slim")
    shutil.copystat(image.root / image.volume[1:], volume)
    owner = (image.root / image.volume[1:]).stat()
    shutil.chown(volume, owner.st_uid, owner.st_gid)
    services = COMPOSE["services"]
    once = image.inside(volume=volume, place=image.volume)
    assert "still runs" not in once.must(*services["prepare"]["entrypoint"])
    token = str(json.loads((volume / "first-login.json").read_text())["token"])
    port = free_port()
    with ExitStack() as stack:
        web = [*services["web"]["command"], "--port", str(port)]
        assert services["web"]["command"] == image.command
        stack.enter_context(running(image, volume, folder / f"{target}-web.log", *web))
        stack.enter_context(running(image, volume, folder / f"{target}-worker.log", *services["worker"]["command"]))
        assert wait_until(lambda: answers(port), _SEEN_S), (folder / f"{target}-web.log").read_text()
        assert_sent_and_read_back(token, port)
        done = once.must("bin/manage", "roll")
        assert "Traceback" not in done
    assert not answers(port)


def _megabytes(root: Path) -> float:
    done = subprocess.run(["du", "-sm", root], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[0])
