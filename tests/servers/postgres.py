"""One private PostgreSQL on loopback, and any command run against it: ``python -m tests.servers.postgres COMMAND…``.

The command finds the server in DATABASE_URL and the server is gone when it ends; the exit status is the command's. The
server refuses to run as root: then it runs as the user that Debian's package made, with its data in a folder of the
system's temporary place, since that user may not enter ours.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import NotReady, Process, free_ports, kept_ports, wait_ready, wait_until

READY_S = 180  # of a busy machine
USER = "postgres"
ELSEWHERE = "elsewhere"  # a file that names the folder of the data
FORGETFUL = ("fsync=off", "full_page_writes=off")  # for data that nobody wants after a power failure
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=60", "shared_buffers=64MB")


@dataclass(frozen=True, slots=True)
class Postgres:
    """One server with its data in ``folder``."""

    folder: Path
    port: int
    keeps: bool = False  # its data, also over a power failure; a kill -9 of it loses nothing in either case

    @classmethod
    def new(cls) -> "Postgres":
        """A server that does not exist yet, in a folder of its own."""
        folder = Path(tempfile.mkdtemp(prefix="spm-postgres-"))
        if os.geteuid() == 0 and cls.missing() is None:
            shutil.chown(folder, USER, USER)
        return cls(folder, free_ports(1)[0])

    @classmethod
    def lasting(cls, folder: Path) -> "Postgres":
        """The server that keeps its data and its port in ``folder``, or wherever ``placed`` has put them."""
        note = folder / ELSEWHERE
        port = kept_ports(folder, ["postgres"])["postgres"]
        return cls(Path(note.read_text()) if note.exists() else folder, port, keeps=True)

    @property
    def url(self) -> str:
        """Its address, as DATABASE_URL wants it."""
        return f"postgres://{USER}@127.0.0.1:{self.port}/{USER}"

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here, or ``None``."""
        if not _programs():
            return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.geteuid() == 0 and not shutil.which("setpriv"):
            return "PostgreSQL does not run as root, and there is no setpriv to run it as another user"
        return None

    def start(self) -> str:
        """Make the data if there is none, start, wait until it answers, and say where; raises ``NotReady``."""
        reason = self.missing()
        if reason:
            raise NotReady(reason)
        programs, data = _programs()[-1], self.folder / "data"
        if not (data / "PG_VERSION").exists():
            make: list[str | Path] = [
                programs / "initdb",
                "--pgdata",
                data,
                "--username",
                USER,
                "--auth",
                "trust",
                "--encoding",
                "UTF8",
            ]
            words = _as_user([*make, "--locale", "C.UTF-8", "--no-sync"])
            result = subprocess.run(words, capture_output=True, text=True, check=False)
            if result.returncode:
                raise NotReady(f"initdb failed: {result.stderr.strip()[-500:]}")
        settings = SETTINGS if self.keeps else (*SETTINGS, *FORGETFUL)
        options = [word for setting in settings for word in ("-c", setting)]
        command = _as_user([programs / "postgres", "-D", data, "-p", str(self.port), *options])

        def ready() -> bool:
            self._server.start(command, os.environ)  # after a kill -9 it ends until the last of its old processes has
            return self._answers(programs)

        wait_until(ready, READY_S)
        wait_ready(ready, [self._server], 1)
        return self.url

    def stop(self) -> None:
        """End it: a fast shutdown, which does not wait for clients."""
        pid = self._server.pid()
        if pid is not None:
            os.kill(pid, signal.SIGINT)
        self._server.stop(30)

    def kill(self) -> None:
        """Kill -9."""
        self._server.kill()

    def alive(self) -> bool:
        """Whether it runs."""
        return self._server.alive()

    @property
    def _server(self) -> Process:
        return Process("postgres", self.folder)

    def _answers(self, programs: Path) -> bool:
        command = [str(programs / "pg_isready"), "--host", "127.0.0.1", "--port", str(self.port), "--quiet"]
        return subprocess.run(command, check=False).returncode == 0


def placed(folder: Path) -> Path:
    """``folder`` itself if the server's user may enter it, else one of /var/tmp, which ``folder`` names from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return folder
    shutil.chown(folder, USER, USER)
    if subprocess.run(_as_user(["test", "-w", folder]), check=False).returncode == 0:
        return folder
    note = folder / ELSEWHERE
    if not note.exists():
        note.write_text(tempfile.mkdtemp(prefix="spm-postgres-", dir="/var/tmp"))
        shutil.chown(note.read_text(), USER, USER)
    return Path(note.read_text())


def _programs() -> list[Path]:
    """Folders of the installed versions, the newest last."""
    return sorted({path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")}, key=_version)


def _version(programs: Path) -> int:
    return int(programs.parent.name)


def _as_user(command: Sequence[str | Path]) -> list[str]:
    words = [str(word) for word in command]
    if os.geteuid() != 0:
        return words
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *words]


def main() -> int:
    """Run a command against a server that lives as long as it does."""
    server = Postgres.new()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        url = server.start()
        return subprocess.run(sys.argv[1:], env={**os.environ, "DATABASE_URL": url}, check=False).returncode
    except NotReady as reason:
        print(reason, file=sys.stderr)
        return 1
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
