"""``manage.py retract`` and ``undo``: preview, question, change; also ``rollback``, ``roll`` and ``upgrade``."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from rollups.management import terminal
from rollups.management.commands import erase_retracted
from rollups.models import RetractionRecord, Run, RunKind
from rollups.run.driver import Progress
from rollups.services import runs as services_runs
from spm.accounts.models import AuditEntry
from spm.clock import FakeClock, SystemClock
from spm.store.backends.lmdb_gaps import Gap
from spm.store.versions import retractions
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def app(alpha: Tenant, settings: Any) -> int:
    """The number of an app with two minutes of four hosts."""
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=120_000)
    return alpha.app.pk


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command and return its output."""

    def run(*args: Any, **options: Any) -> str:
        call_command(*args, **options)
        return capsys.readouterr().out

    return run


def in_force(app: int) -> list[int]:
    """The numbers of retractions in force."""
    return [r.number for r in retractions.read(services_runs.site().store, app) if r.active()]


def test_a_dry_retract_says_what_it_would_hide(app: int, run_command: Any) -> None:
    text = run_command("retract", app, "--source", "db-1", "--dry-run")
    assert re.search(r"264 samples in 22 series, [12] hours?, 0 past alerts", text)
    assert "from db-1; metrics cpu_usage_iowait, " in text
    assert "and 14 more" not in text.split("metrics")[0]
    assert in_force(app) == []


@pytest.mark.parametrize(("answer", "numbers"), [("y", [1]), ("", []), ("no", [])])
def test_a_retract_asks_first(
    app: int, run_command: Any, monkeypatch: pytest.MonkeyPatch, answer: str, numbers: list[int]
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: answer)
    text = run_command("retract", app, "--series", 'mem_used{host="web-1"}', "--reason", "x")
    assert text.startswith("12 samples in 1 series")
    assert in_force(app) == numbers


def test_a_retraction_is_undone_by_its_number(app: int, run_command: Any) -> None:
    run_command("retract", app, "--source", "db-1", "--reason", "wrong clock", "--yes")
    [number] = in_force(app)
    assert "in force: db-1, 264 samples; command line: wrong clock" in run_command("undo", app, number, "--dry-run")
    assert in_force(app) == [number]
    assert f"retraction {number} is undone" in run_command("undo", app, number)
    assert in_force(app) == []
    assert RetractionRecord.objects.get().undone_by == "command line"
    assert {entry.actor_name for entry in AuditEntry.objects.filter(action__in=["retract", "undo"])} == {"command line"}


@pytest.mark.parametrize(("answer", "is_erased"), [("purge 1", True), ("y", False)])
def test_erase_retracted_waits_for_its_phrase(
    app: int, run_command: Any, monkeypatch: pytest.MonkeyPatch, answer: str, is_erased: bool
) -> None:
    run_command("retract", app, "--source", "db-1", "--reason", "x", "--yes")
    assert "264 samples in" in run_command("erase_retracted", app, 1, "--dry-run")
    monkeypatch.setattr("builtins.input", lambda _: answer)
    text = run_command("erase_retracted", app, 1)
    assert ("nothing was deleted" not in text) == is_erased
    assert [bool(r.erased_ms) for r in retractions.read(services_runs.site().store, app)] == [is_erased]


def test_the_former_name_of_erase_retracted_is_the_same_command() -> None:
    assert import_module("rollups.management.commands.shred").Command is erase_retracted.Command


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["retract", "{app}", "--yes", "--reason", "x"], "everything"),
        (["retract", "{app}", "--yes", "--source", "db-1"], "needs a reason"),
        (["retract", "{app}", "--series", "sum(", "--reason", "x", "--yes"], "unexpected end of input"),
        (["retract", "{app}", "--source", "a", "--after", "soon"], "'soon' is no time"),
        (["retract", "{app}", "--source", "a", "--accepted-to", "9" * 30], "out of range"),
        (["retract", "99", "--source", "a"], "no app 99"),
        (["undo", "{app}", "5"], "no retraction 5"),
        (["undo", "99", "5"], "no app 99"),
        (["rollback", "5"], "in no history"),
        (["rollback", "5", "--dry-run"], "in no history"),
        (["rollback", "5", "--app", "99"], "no app 99"),
        (["undo", "{app}", "9" * 30], "no retraction 999"),
        (["roll", "--local", "--app", "99"], "no app 99"),
        (["purge", "--app", "99"], "no app 99"),
        (["purge", "--keep", "-1"], "at least 0"),
        (["retention", "--app", "99", "--dry-run"], "no app 99"),
        (["upgrade", "--app", "99", "--dry-run"], "no app 99"),
        (["fsck", "--app", "99"], "no app 99"),
        (["fsck", "--hour", "noon"], "'noon' is no time"),
        (["redistribute", "99"], "no app 99"),
        (["redistribute", "{app}", "--spread", "0"], "shards"),
    ],
)
def test_an_impossible_command_says_why(app: int, args: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        call_command(*[arg.format(app=app) for arg in args])


def test_a_check_that_cannot_reach_all_rows_says_what_to_do(
    app: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = [Gap("log", None, None), Gap("marks", None, None)]
    monkeypatch.setattr(type(services_runs.site().store), "pass_by_damage", lambda _store: gaps, raising=False)
    wanted = r"2 ranges of rows cannot be reached.*nothing was repaired.*bin/manage restore"
    with pytest.raises(CommandError, match=wanted):
        call_command("fsck", "--repair", "--app", str(app))
    assert capsys.readouterr().out.count(": unreadable: ") == 2


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, ms: int) -> None:
    assert terminal.parse_time(text) == ms


def test_a_dry_roll_says_what_it_would_compact(app: int, run_command: Any) -> None:
    text = run_command("roll", "--local", "--minor", "--dry-run")
    assert re.match(r"would compact \d+ hour shards of [12] days, 1,0\d\d pending samples|would compact", text)
    assert not Run.objects.exists()
    run_command("roll", "--local", "--minor")
    assert "nothing to do" in run_command("roll", "--local", "--minor", "--dry-run")
    assert "nothing to do" in run_command("upgrade", "--local", "--dry-run")


def test_a_dry_rollback_says_what_it_would_restore(app: int, run_command: Any) -> None:
    run_command("roll", "--local", "--minor")
    run = Run.objects.get()
    assert re.search(
        rf"would be rolled back in {run.units} hour shards", run_command("rollback", run.number, "--dry-run")
    )
    assert "was rolled back" in run_command("rollback", run.number, "--app", str(app))
    assert Run.objects.get().state == "rolled back"


def test_an_upgrade_leaves_a_run_of_its_kind(app: int, run_command: Any) -> None:
    run_command("roll", "--local", "--minor")
    run_command("upgrade", "--local")
    assert set(Run.objects.values_list("kind", flat=True)) <= {RunKind.MINOR, RunKind.UPGRADE}


class Out:
    """Records what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None) -> None:
        self.text += msg + ("\n" if ending is None else ending)


def test_a_terminal_sees_one_line_that_is_written_over() -> None:
    out = Out()
    line = terminal.ProgressLine(out, terminal=True, clock=FakeClock())
    for done in (1, 2, 3):
        line(Progress(done, 3, done * 100, 2.0))
    assert out.text.count("\n") == 1
    assert out.text.endswith("\r\x1b[K3/3 hour shards, 150 samples/s, 0 s to go\n")


def test_a_log_file_sees_a_line_now_and_then() -> None:
    out, clock = Out(), FakeClock()
    line = terminal.ProgressLine(out, terminal=False, clock=clock)
    for done in range(1, 21):
        line(Progress(done, 20, done, 1.0))
        clock.advance(1_000)
    assert [text.split(" ")[0] for text in out.text.splitlines()] == ["1/20", "6/20", "11/20", "16/20", "20/20"]
