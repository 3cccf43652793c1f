"""What orchestrators and proxies ask: whether the process lives, and whether it can work."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from frontend import health
from frontend.health import Readiness
from spm.cli.preflight import announce_compilation
from spm.settings.compilation import Compilation
from tests.servers.processes import wait_until

LIVE, READY = ("/livez", "/-/healthy", "/prometheus/-/healthy"), ("/readyz", "/-/ready", "/prometheus/-/ready")


def fail() -> None:
    raise OSError("postgres://user:secret@inside")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The checks of the address, which a test changes."""
    parts: dict[str, Any] = dict.fromkeys(["database", "store", "broker", "disk"], lambda: None)
    monkeypatch.setattr(health, "_READINESS", Readiness(parts))
    return parts


@pytest.mark.django_db
@pytest.mark.parametrize("address", [*LIVE, *READY])
def test_all_names_answer_200_while_all_is_well(checks: dict[str, Any], address: str) -> None:
    answer = Client().get(address)
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")


@pytest.mark.seed("A42", compares="what readiness says with each part away, with which one is")
@pytest.mark.django_db
@pytest.mark.parametrize("part", ["database", "store", "broker", "disk"])
def test_a_part_that_is_away_is_named_without_our_insides(checks: dict[str, Any], part: str) -> None:
    checks[part] = fail
    answer = Client().get("/readyz")
    expected = {name: "away" if name == part else "ok" for name in checks}
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "checks": expected})
    assert Client().get("/livez").status_code == 200


@pytest.mark.django_db
def test_a_site_whose_kernels_are_being_compiled_is_not_ready(
    checks: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    announce_compilation(tmp_path, kernels=7)
    health.ask_also("kernels", Compilation(tmp_path).check)
    answer = Client().get("/readyz")
    states = {**dict.fromkeys(checks, "ok"), "kernels": "compiling"}
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "checks": states})


@pytest.mark.django_db
@pytest.mark.parametrize(("address", "code"), [("/readyz", 200), ("/readyz?strict=1", 503), ("/livez", 200)])
def test_a_full_disk_is_named_and_takes_off_only_who_asks_strictly(
    checks: dict[str, Any], monkeypatch: pytest.MonkeyPatch, address: str, code: int
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _folder: SimpleNamespace(f_bavail=0, f_frsize=4096, f_flag=0))
    checks["disk"] = health._ask_disk
    answer = Client().get(address)
    assert answer.status_code == code
    if address != "/livez":
        expected = {"database": "ok", "store": "ok", "broker": "ok", "disk": "full"}
        assert answer.json() == {"status": "degraded", "checks": expected}


@pytest.mark.django_db
def test_what_is_away_weighs_more_than_a_full_disk(checks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    room = SimpleNamespace(f_bavail=10**9, f_frsize=4096, f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _folder: room)
    checks |= {"disk": health._ask_disk, "store": fail}
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["checks"]["disk"]) == (503, "not ready", "full")


@pytest.mark.seed("A42", compares="states of a part that never answers, and calls to it, with the budget")
def test_a_part_that_never_answers_costs_a_second_once_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "BUDGET_S", 0.05)
    release, calls = threading.Event(), list[int]()

    def ask() -> None:
        calls.append(1)
        release.wait(20)

    readiness = Readiness({"store": ask})
    for _ in range(3):
        assert readiness.states() == {"store": "away"}
        threading.Event().wait(0.06)
    assert len(calls) == 1
    release.set()
    assert wait_until(lambda: readiness.states() == {"store": "ok"}, 60)


@pytest.mark.django_db
def test_the_real_parts_are_asked_and_an_answer_counts_for_a_second(settings: Any) -> None:
    readiness = health._READINESS
    assert set(readiness.states()) == {"database", "store", "broker", "disk"}
    assert readiness.states() is readiness.states()


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["query", "labels", "status/buildinfo"])
def test_prometheus_api_at_the_wrong_address_says_the_right_one(name: str) -> None:
    answer = Client().get(f"/api/v1/{name}")
    assert (answer.status_code, "/prometheus/api/v1/" in answer.json()["error"]) == (404, True)


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/api/", "/api/v2/apps", "/api/v1/nothing"])
def test_an_unknown_operation_is_refused_in_the_form_of_the_api(address: str) -> None:
    answer = Client().post(address)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])
