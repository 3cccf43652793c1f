"""The shell scripts of ``bin``: what they refuse before anything is installed, and the wrapper they lean on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spm.cli.tools import wrapper

ROOT = Path(__file__).resolve().parents[3]


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "script",
    [
        "start",
        "manage",
        "run",
        "test",
        "lock",
        "lib.sh",
        "../.ci/run",
        "../.ci/audit",
        "../.ci/sbom",
        "../deploy/install.sh",
    ],
)
def test_script_is_posix_shell(script: str) -> None:
    assert run("sh", "-n", str(ROOT / "bin" / script)).stderr == ""


def test_start_explains_its_arguments_without_setting_anything_up(tmp_path: Path) -> None:
    done = run("bin/start", "--help", SPM_ENVIRONMENT=str(tmp_path / "none"))
    assert "--no-agent" in done.stdout
    assert not (tmp_path / "none").exists()


def test_start_without_a_new_enough_python_says_so_in_one_sentence(tmp_path: Path) -> None:
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        (tmp_path / name).write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 || exit 1\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = run("bin/start", PATH=path, SPM_ENVIRONMENT=str(tmp_path / "e"), SPM_PYTHON="")
    assert done.returncode != 0
    assert done.stderr.strip() == (
        "SPM needs Python 3.11, 3.12, 3.13 or 3.14, and this machine has Python 3.9.2. Install one, or name it in"
        " SPM_PYTHON."
    )


def test_commands_take_the_kernels_that_bin_run_compiled_into_the_data_folder(tmp_path: Path) -> None:
    """Else each command in a container, which can write nothing but its data folder, compiles them anew."""
    environment, data = tmp_path / "environment", tmp_path / "data"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)

    def kernels() -> Path:
        script = 'root=$PWD; . bin/lib.sh; enter_environment; echo "$NUMBA_CACHE_DIR"'
        folders = {"SPM_ENVIRONMENT": str(environment), "SPM_DATA": str(data), "NUMBA_CACHE_DIR": ""}
        return Path(run("sh", "-ec", script, **folders).stdout.strip())

    own = kernels()
    assert own.parent == environment / "kernels"
    (data / "kernels" / own.name).mkdir(parents=True)
    assert kernels() == data / "kernels" / own.name


def test_start_refuses_to_empty_a_folder_that_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    done = run("bin/start", SPM_ENVIRONMENT=str(tmp_path))
    assert (done.returncode, "is no Python environment" in done.stderr) == (1, True)
    assert (tmp_path / "letters").exists()


def test_java_wrapper_passes_every_other_argument_on_unchanged(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    (tmp_path / "wrapper").write_text(wrapper(java))
    done = run("sh", str(tmp_path / "wrapper"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME")
    assert done.stdout == "<-cp><a b><><$HOME>"


def test_extras_are_installed_again_after_a_return_to_0_1_0(tmp_path: Path) -> None:
    """0.1.0 notes in ``doors`` what it has installed; these notes replace ours, however often both take turns."""
    notes = {"doors/dev": "installed by 0.1.0", "extras/dev": "installed by us", "extras/doors/dev": "of a former turn"}
    for name, text in notes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run("sh", "-euc", f'. bin/lib.sh; environment="{tmp_path}"; need_extras')
    assert (done.returncode, done.stderr) == (0, "")
    files = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"extras/dev": "installed by 0.1.0"}


def test_what_is_downloaded_is_said_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(
        '#!/bin/sh\nfor last; do :; done\n[ "$3" = --version ] || grep -q pyspark "$last" || exit 0\n'
        'echo "Downloading pyspark.tar.gz (456 MB)"\n'
    )
    python.chmod(0o755)
    done = run("sh", "-euc", f'. bin/lib.sh; environment="{tmp_path}"; need_extras server agent spark')
    assert done.stderr.splitlines() == [
        "· installing the Python packages of: server agent spark (a download of 633 MB, less what pip has cached)",
        "    Downloading pyspark.tar.gz (456 MB)",
    ]


@pytest.mark.parametrize(("before", "is_compiled"), [("without_bytecode=1;", False), ("", True)])
def test_modules_are_compiled_at_their_installation_unless_a_start_waits(
    tmp_path: Path, before: str, is_compiled: bool
) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    python.chmod(0o755)
    done = run("sh", "-euc", f'{before} . bin/lib.sh; environment="{tmp_path}"; need_extras agent')
    assert done.returncode == 0, done.stderr
    [install] = [line for line in (tmp_path / "calls").read_text().splitlines() if " install " in line]
    assert ("--no-compile" in install) != is_compiled


def test_a_first_start_installs_without_compiling_what_it_may_never_import() -> None:
    lines = (ROOT / "bin" / "start").read_text().splitlines()
    place = {line.split()[0].partition("=")[0]: n for n, line in enumerate(lines) if line.strip()}
    assert place["without_bytecode"] < place["need_extras"]
    assert "without_bytecode" not in (ROOT / "bin" / "manage").read_text()  # images are made by it


def test_two_processes_install_every_package_between_them_and_none_twice(tmp_path: Path) -> None:
    extras, halves = ("server", "agent", "spark"), []
    for half in ("0", "1"):
        done = run("sh", "-euc", f". bin/lib.sh; half_of {half} {' '.join(extras)}")
        halves.append(done.stdout)
    texts = [(ROOT / "requirements" / f"{extra}.txt").read_text() for extra in extras]
    wanted = {line for text in texts for line in text.splitlines() if line[:1].isalpha()}
    heads = [line for half in halves for line in half.splitlines() if line[:1].isalpha()]
    assert sorted(heads) == sorted(wanted)
    hashes = {line.strip(" \\") for text in texts for line in text.splitlines() if "--hash" in line}
    assert {line.strip(" \\") for half in halves for line in half.splitlines() if "--hash" in line} == hashes
    assert abs(halves[0].count("==") - halves[1].count("==")) <= 1


@pytest.mark.parametrize("failing", ["half-0", "half-1"])
def test_an_installation_of_which_one_half_fails_says_why_and_is_not_noted(tmp_path: Path, failing: str) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{failing}*) echo "ERROR: no such package"; exit 1 ;; esac\n')
    python.chmod(0o755)
    done = run("sh", "-euc", f'. bin/lib.sh; environment="{tmp_path}"; need_extras server; echo went on')
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"pip could not install: ERROR: no such package. The full log is {tmp_path}/pip-{failing[-1]}.log"
        in done.stderr
    )
    assert not (tmp_path / "extras").exists()


def test_a_command_on_a_database_that_was_never_prepared_says_so_in_one_sentence(tmp_path: Path) -> None:
    for name in ("secret-key", "pepper"):
        (tmp_path / name).write_text("x" * 50)
    database = f"sqlite:///{tmp_path}/spm.sqlite3"
    done = run(sys.executable, "manage.py", "roll", SPM_DATA=str(tmp_path), DATABASE_URL=database)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "was never prepared. Give this command the settings that bin/start has" in done.stderr
