"""What a start decides from its arguments: options, programs, waiting times, texts."""

import json
import os
import sys
from pathlib import Path

import pytest

from spm.cli.console import json_line, welcome
from spm.cli.options import Options, parse
from spm.cli.preflight import COMPILING
from spm.cli.serve import Supervisor
from spm.cli.supervisor import Log, Program, deaths_of_damage, kernels_program, programs, restart_delay
from spm.cli.tools import java_version, wrapper
from spm.clock import SystemClock
from spm.errors import StillCompiling
from spm.limits import HEALTHY_AFTER_S, LOG_BYTES_MAX, RESTART_DELAY_S_MAX
from spm.settings.compilation import Compilation

ROOT = Path("/repository")
LOGIN = {
    "url": "http://localhost:8000",
    "login": "a@b.c",
    "password": "secret",
    "app": 1,
    "token": "spm_x",
    "agent_token": "spm_y",
}


def options(*arguments: str, **environ: str) -> Options:
    return parse(arguments, environ, ROOT)


def test_start_without_arguments_serves_this_machine_on_8000() -> None:
    parsed = options()
    assert (parsed.url, parsed.data, parsed.host, parsed.agent, parsed.json) == (
        "http://localhost:8000",
        ROOT / "var",
        "127.0.0.1",
        True,
        False,
    )


def test_data_folder_of_the_environment_goes_before_the_argument() -> None:
    assert options("--data", "there", SPM_DATA="/here").data == Path("/here")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "８０"])
def test_port_that_is_none_is_refused_with_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        options(f"--port={port}")
    assert "use a number from 1 to 65535" in capsys.readouterr().err


def test_unknown_argument_is_refused_with_status_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        options("--jason")


@pytest.mark.parametrize(
    ("bound", "for_people", "for_the_agent"),
    [
        ("127.0.0.1", "http://localhost:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://localhost:9000", "http://127.0.0.1:9000"),
        ("::", "http://localhost:9000", "http://[::1]:9000"),
        ("::1", "http://localhost:9000", "http://[::1]:9000"),
        ("10.1.2.3", "http://10.1.2.3:9000", "http://10.1.2.3:9000"),
        ("fd00::5", "http://[fd00::5]:9000", "http://[fd00::5]:9000"),
    ],
)
def test_agent_reaches_its_own_server_where_no_name_resolves(bound: str, for_people: str, for_the_agent: str) -> None:
    own = options("--port", "9000", SPM_BIND=bound)
    assert (own.url, programs(own, "spm_y")[-1].environ["SPM_AGENT_URL"]) == (for_people, for_the_agent)


def test_agent_gets_the_token_that_is_its_own() -> None:
    agent = programs(options("--port", "9000"), "spm_y")[-1]
    assert agent.environ["SPM_AGENT_TOKEN"] == "spm_y"


def test_agent_is_left_out_when_there_is_no_token_for_it() -> None:
    assert [program.name for program in programs(options(), None)] == ["web", "worker"]


@pytest.mark.parametrize(
    ("failures", "ran_s", "delay"),
    [
        pytest.param(0, 1, 1, id="first quick end"),
        pytest.param(2, 1, 4, id="doubles each time"),
        pytest.param(50, 1, RESTART_DELAY_S_MAX, id="never above the limit"),
        pytest.param(50, HEALTHY_AFTER_S, 0, id="after a long run at once"),
    ],
)
def test_restart_waits_longer_after_each_quick_end(failures: int, ran_s: float, delay: float) -> None:
    assert restart_delay(failures, ran_s) == delay


@pytest.mark.parametrize(
    ("output", "deaths"),
    [
        pytest.param(b"[ERROR] Worker (pid:7) was sent SIGBUS!\n[INFO] Booting worker", 1, id="a file that ends early"),
        pytest.param(b"python: mdb.c:6273: Assertion 'IS_LEAF(mp)' failed in mdb_cursor_set()\n", 1, id="a bad page"),
        pytest.param(b"[CRITICAL] WORKER TIMEOUT\n[ERROR] Worker (pid:7) was sent SIGABRT!\n", 0, id="one that hung"),
        pytest.param(b"GET /ping 200\n", 0, id="an answer"),
    ],
)
def test_output_tells_which_processes_ended_by_reading_a_damaged_store(output: bytes, deaths: int) -> None:
    assert deaths_of_damage(output) == deaths


def test_two_processes_that_end_by_reading_the_store_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor(options(SPM_DATA=str(tmp_path)), LOGIN, SystemClock())
    dying = Program("web", (sys.executable, "-c", "import os; os.kill(os.getpid(), 7)"), {})
    monkeypatch.setattr("spm.cli.serve.restart_delay", lambda failures, ran_s: 0.0)
    supervisor._start(dying)
    for _ in range(200):
        supervisor._turn()
        if supervisor._deaths_of_damage >= 3:
            break
    supervisor._stop()
    output = capsys.readouterr()
    assert (output.out + output.err).count("The store in") == 1


def test_all_but_the_web_server_start_when_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    end = tmp_path / "end"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.01)"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    compiling = Program("kernels", (sys.executable, "-c", code), {})
    sleeping = [Program(name, ("sleep", "600"), {}) for name in ("web", "worker", "agent")]
    monkeypatch.setattr("spm.cli.serve.programs", lambda *_: sleeping)
    monkeypatch.setattr("spm.cli.serve.kernels_program", lambda _: compiling)
    supervisor = Supervisor(options(SPM_DATA=str(tmp_path)), {**LOGIN, "kernels_later": 7}, SystemClock())
    try:
        supervisor._start_all()
        supervisor._turn()
        assert supervisor._children.keys() == {"web", "kernels"}
        with pytest.raises(StillCompiling, match="of 7 are done"):
            Compilation(tmp_path).check()
        end.touch()
        for _ in range(200):
            supervisor._turn()
            if "kernels" not in supervisor._children:
                break
        assert supervisor._children.keys() == {"web", "worker", "agent"}
        assert supervisor._due == {}
        Compilation(tmp_path).check()
    finally:
        supervisor._stop()
    assert "kernels are compiled" in capsys.readouterr().err


def test_all_programs_start_at_once_where_no_kernel_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeping = [Program(name, ("sleep", "600"), {}) for name in ("web", "worker", "agent")]
    monkeypatch.setattr("spm.cli.serve.programs", lambda *_: sleeping)
    supervisor = Supervisor(options(SPM_DATA=str(tmp_path)), {**LOGIN, "kernels_later": 0}, SystemClock())
    (tmp_path / COMPILING).write_text(json.dumps({"pid": os.getpid(), "kernels": 7, "folder": str(tmp_path)}))
    try:
        supervisor._start_all()
        assert supervisor._children.keys() == {"web", "worker", "agent"}
        Compilation(tmp_path).check()  # what another start has left behind holds nothing up
    finally:
        supervisor._stop()


@pytest.mark.parametrize(("arguments", "waits"), [(["--json"], True), ([], False)])
def test_a_script_gets_its_line_when_kernels_are_compiled_and_people_theirs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], waits: bool
) -> None:
    waits_then = list[bool]()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("spm.cli.serve.programs", lambda *_: [Program("web", ("sleep", "600"), {})])
    monkeypatch.setattr("spm.cli.serve.kernels_program", lambda _: Program("kernels", ("sleep", "1"), {}))
    monkeypatch.setattr("spm.cli.serve.answers", lambda _: True)
    monkeypatch.setattr("spm.cli.serve.signal.signal", lambda *_: None)
    data = options(*arguments, SPM_DATA=str(tmp_path))
    supervisor = Supervisor(data, {**LOGIN, "kernels_later": 7}, SystemClock())

    def tell() -> None:
        waits_then.append("kernels" in supervisor._children)
        supervisor._count_stop(0, None)

    monkeypatch.setattr(supervisor, "_tell_ready", tell)
    supervisor.run()
    assert waits_then == [not waits]


def test_kernels_are_compiled_at_a_lower_priority_than_pages_are_served() -> None:
    command = kernels_program(options()).command
    assert command[:3] == ("nice", "-n", "5")
    assert command[-3:] == ("manage.py", "prepare", "--kernels-alone")


def test_welcome_says_that_charts_wait_for_kernels() -> None:
    texts = [welcome({**LOGIN, "kernels_later": each}, options(), shows_secrets=True) for each in (7, 0)]
    assert ["kernels are being compiled" in text for text in texts] == [True, False]


def test_log_grown_past_its_limit_becomes_the_older_one(tmp_path: Path) -> None:
    log = Log(tmp_path / "web.log")
    for piece in (b"old", b"x" * LOG_BYTES_MAX, b"new"):
        log.write(piece)
    assert (tmp_path / "web.log").read_bytes() == b"new"
    assert (tmp_path / "web.log.1").stat().st_size == LOG_BYTES_MAX + 3


def test_json_line_has_the_fields_that_scripts_need_and_no_agent_token() -> None:
    assert json.loads(json_line(LOGIN)) == {k: v for k, v in LOGIN.items() if k != "agent_token"}


def test_welcome_leaves_out_a_password_that_was_changed() -> None:
    text = welcome({**LOGIN, "password": None, "token": None}, options(), shows_secrets=True)
    assert "Password" not in text
    assert "Token" not in text


def test_welcome_shows_the_first_password_at_a_terminal_alone() -> None:
    shown, logged = (welcome(LOGIN, options(SPM_DATA="/d"), shows_secrets=each) for each in (True, False))
    assert str(LOGIN["password"]) in shown
    assert str(LOGIN["token"]) in shown
    assert str(LOGIN["password"]) not in logged
    assert str(LOGIN["token"]) not in logged
    assert "in /d/first-login.json" in logged


@pytest.mark.parametrize(
    ("host", "url", "warns"),
    [
        ("127.0.0.1", "http://localhost:8000", False),
        ("0.0.0.0", "http://10.0.0.1:8000", True),
        ("0.0.0.0", "https://monitoring.example", False),
    ],
)
def test_welcome_warns_where_other_machines_send_passwords_in_the_clear(host: str, url: str, warns: bool) -> None:
    text = welcome({**LOGIN, "url": url}, options(SPM_BIND=host), shows_secrets=True)
    assert ("without TLS" in text) == warns


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("sh: java: not found", 0),
    ],
)
def test_java_version_is_read_from_the_output_of_java(text: str, version: int) -> None:
    assert java_version(text) == version


def test_java_wrapper_drops_only_the_module_that_is_not_there() -> None:
    assert "--add-modules=jdk.incubator.vector ] ||" in wrapper(Path("/jdk/bin/java"))
