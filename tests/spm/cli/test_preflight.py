"""What a start checks before it starts: each refusal is one sentence, each secret is made once."""

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spm.cli.preflight import CannotStart, cannot_write, check_port, check_room, lock_data, open_data, write_private


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_folder_gets_two_secrets_for_its_owner_alone(tmp_path: Path) -> None:
    open_data(tmp_path / "data")
    assert {_mode(tmp_path / "data" / name) for name in ("secret-key", "pepper")} == {0o600}


def test_a_data_folder_that_exists_is_closed_to_others(tmp_path: Path) -> None:
    """Password hashes, session keys, mail and logs were readable by every user of the machine."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    open_data(data)
    assert _mode(data) == 0o700


@pytest.mark.parametrize("start", ["run_path('manage.py'", "run_module('spm.cli.serve'"])
def test_what_a_process_of_ours_writes_is_its_users_alone(start: str) -> None:
    code = "import os, runpy, sys; sys.argv = ['it', '--help']; os.umask(0o022)\n"
    code += f"try: runpy.{start}, run_name='__main__')\nexcept SystemExit: pass\n"
    code += "print(oct(os.umask(0)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0o77"


def test_secrets_stay_the_same_at_the_second_start(tmp_path: Path) -> None:
    open_data(tmp_path)
    before = (tmp_path / "secret-key").read_text()
    open_data(tmp_path)
    assert (tmp_path / "secret-key").read_text() == before != (tmp_path / "pepper").read_text()


def test_private_file_replaces_a_half_written_one(tmp_path: Path) -> None:
    (tmp_path / "token.new").write_text("half")
    write_private(tmp_path / "token", "whole")
    assert ((tmp_path / "token").read_text(), _mode(tmp_path / "token")) == ("whole", 0o600)
    assert not (tmp_path / "token.new").exists()


def test_disk_without_room_is_named_with_its_figures(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(CannotStart, match=r"The disk of .* is full: \d+ MB are free, \d+ MB are needed"):
        check_room(tmp_path, needed_bytes=free * 2)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "The disk of /data is full"),
        (errno.EDQUOT, "The disk of /data is full"),
        (errno.EACCES, "The data folder /data cannot be used: Permission denied"),
    ],
)
def test_refusal_of_the_system_becomes_a_sentence_about_the_data_folder(number: int, sentence: str) -> None:
    assert str(cannot_write(Path("/data"), OSError(number, os.strerror(number)))).startswith(sentence)


def test_data_folder_that_is_a_file_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(CannotStart, match="cannot be used"):
        open_data(tmp_path / "data")


def test_second_start_on_the_same_data_is_refused_with_the_owners_number(tmp_path: Path) -> None:
    first = lock_data(tmp_path)
    with pytest.raises(CannotStart, match=f"already running on .* \\(process {os.getpid()}\\)"):
        lock_data(tmp_path)
    os.close(first)
    os.close(lock_data(tmp_path))


def test_port_in_use_is_refused_with_the_way_out() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotStart, match=f"Port {port} is in use .* --port"):
            check_port("127.0.0.1", port)


def test_free_port_passes_the_check_and_stays_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)
