"""The checks of data folder, free space and port before a start; it also makes the two secrets that are missing.

``START_FREE_BYTES_MIN`` says how much must be free. ``bin/lib.sh`` checks Python and the room for packages, ``tools``
Node and Java. Each check either passes or raises ``CannotStart`` with one sentence that says what to do. This module
starts no process and does not use Django. Enter by ``open_data``.
"""

import errno
import fcntl
import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from spm.clock import random_bytes
from spm.errors import SpmError
from spm.limits import START_FREE_BYTES_MIN

COMPILING = "compiling"  # in the data folder: that kernels are compiled beside the server, and how many
WEB_METRICS = "metrics/web"  # in the data folder: the counts of all web processes, which /metrics adds up
SECRETS = ("secret-key", "pepper")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class CannotStart(SpmError):
    """The machine is not ready; the text is for the person at the terminal."""


def open_data(data: Path) -> None:
    """Create the data folder and its secrets where they are missing; check that it is writable and has room."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)  # samples and users are private
        close_to_others(data)
        check_room(data)
        for name in SECRETS:
            _ensure_secret(data / name)
    except OSError as error:
        raise cannot_write(data, error) from error


def close_to_others(data: Path) -> None:
    """Take away the rights of other users to a folder that exists.

    A folder of another user, as containers mount one, keeps its rights: its files are private all the same.
    """
    mode = data.stat().st_mode & 0o7777
    if mode & 0o077:
        with suppress(PermissionError):
            data.chmod(mode & ~0o077)


def check_room(data: Path, needed_bytes: int = START_FREE_BYTES_MIN) -> None:
    """Raise ``CannotStart`` when the disk of ``data`` has less than ``needed_bytes`` free."""
    free = shutil.disk_usage(data).free
    if free < needed_bytes:
        raise CannotStart(
            f"The disk of {data} is full: {free // 1_000_000} MB are free, {needed_bytes // 1_000_000} MB are needed."
            " Make room, or choose another folder with --data."
        )


def cannot_write(data: Path, error: OSError) -> CannotStart:
    """The error for an operating system that refuses to write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotStart(f"The disk of {data} is full. Make room, or choose another folder with --data.")
    return CannotStart(f"The data folder {data} cannot be used: {error.strerror}. Choose another with --data.")


def _ensure_secret(path: Path) -> None:
    """Write a new secret to ``path`` unless it exists; only its owner can read it, and it is complete or absent."""
    if path.exists():
        return
    text = "".join(_ALPHABET[byte & 63] for byte in random_bytes(50))
    write_private(path, text + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, mode 0600, in one step: a crash leaves the old file or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def lock_data(data: Path) -> int:
    """Lock the data folder for this process as long as it lives; the caller keeps the returned descriptor open."""
    handle = os.open(data / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(handle, 20, 0).decode().strip() or "unknown"
        raise CannotStart(f"bin/start is already running on {data} (process {owner}). Stop it first.") from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def clear_metrics(data: Path) -> None:
    """Empty the folder of the web processes' counts; only the process that has locked the data folder may do so."""
    shutil.rmtree(data / WEB_METRICS, ignore_errors=True)
    (data / WEB_METRICS).mkdir(parents=True)


def check_port(host: str, port: int, chosen_by: str = "--port") -> None:
    """Raise ``CannotStart`` when this process cannot listen on ``port``, which an option or setting has chosen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotStart(_port_sentence(host, port, error, chosen_by)) from error


def _port_sentence(host: str, port: int, error: OSError, chosen_by: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use by another program. Stop it, or choose another with {chosen_by}."
    if error.errno == errno.EACCES:
        return f"Port {port} may only be used by root. Choose one above 1023 with {chosen_by}."
    return f"Cannot listen on {host}, port {port}: {error.strerror}."


def announce_compilation(data: Path, *, kernels: int) -> None:
    """Say in the data folder that this process has so many kernels compiled beside the server."""
    note = {"pid": os.getpid(), "kernels": kernels, "folder": os.environ["NUMBA_CACHE_DIR"]}
    (data / COMPILING).write_text(json.dumps(note))


def withdraw_compilation(data: Path) -> None:
    """Say that kernels are compiled no more. Calling twice is safe."""
    with suppress(OSError):
        (data / COMPILING).unlink(missing_ok=True)
