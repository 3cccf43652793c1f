"""``python -m spm.cli.serve``: starts the product's processes and keeps them running until it is stopped.

1. Check the machine: disk, port, no other instance on this data folder.
2. Run ``manage.py prepare``: migrations, static files, kernels, the first organisation. Load what programs share.
3. Start web server, worker and agent; wait for the first answer; print the address and the login. The first time,
   kernels are compiled only now, beside the web server, which says so; worker and agent, which need them, start then.
   A script gets its line of JSON when the kernels are there, since it may send data at once.
4. Loop: move their output to logs, restart those that have ended, with growing delays.
5. On Ctrl-C or SIGTERM: stop all, wait ``STOP_GRACE_S``, kill the remaining ones. A second Ctrl-C does not wait.

It has one loop and no data: if it is killed at any moment, nothing needs repair. Enter by ``main``.
"""

import contextlib
import http.client
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from spm.cli import loaded
from spm.cli.console import json_line, say, welcome
from spm.cli.dotenv import read_dotenv
from spm.cli.options import Options, parse
from spm.cli.preflight import (
    CannotStart,
    announce_compilation,
    cannot_write,
    check_port,
    clear_metrics,
    lock_data,
    open_data,
    withdraw_compilation,
)
from spm.cli.supervisor import (
    KERNELS,
    SIGNALS_OF_DAMAGE,
    Child,
    Log,
    Program,
    environment_of,
    kernels_program,
    programs,
    restart_delay,
)
from spm.clock import Clock, SystemClock
from spm.limits import READY_TIMEOUT_S, STOP_GRACE_S

ROOT = Path(__file__).resolve().parents[2]
_TICK_S = 0.5
_DEATHS_OF_DAMAGE = 2  # one may have another cause


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until stopped; the exit status is 0 only after a requested stop."""
    options = parse(arguments, environ, ROOT)
    try:
        open_data(options.data)
        lock = lock_data(options.data)
        check_port(options.host, options.port)
        if options.grpc_port:
            check_port(options.host, options.grpc_port, "SPM_OTLP_GRPC_PORT")
        clear_metrics(options.data)
        login = prepare(options)
        loaded.load(environment_of(options))
        Supervisor(options, login, SystemClock()).run()
        os.close(lock)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(cannot_write(options.data, error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def prepare(options: Options) -> dict[str, Any]:
    """Run ``manage.py prepare`` and return the login, the last line of its output. Load libraries meanwhile."""
    command = [sys.executable, str(ROOT / "manage.py"), "prepare", "--url", environment_of(options)["SPM_BASE_URL"]]
    command += ["--kernels-later", *(["--accept-store"] if options.accept_store else [])]
    environ = {**os.environ, **environment_of(options)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as done:
        loaded.load_libraries()
        output, _ = done.communicate()
    if -done.returncode in SIGNALS_OF_DAMAGE:
        raise CannotStart(
            f"The store in {options.data} is damaged: reading it ended the program"
            f" ({signal.strsignal(-done.returncode)}). Put a copy back that is whole, or start with another folder."
        )
    if done.returncode != 0:
        raise CannotStart(f"The data folder {options.data} could not be prepared; the reason is above.")
    login: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return login


class Supervisor:
    """Runs the loop; it knows the running programs, those to be restarted, and whether to stop."""

    def __init__(self, options: Options, login: Mapping[str, Any], clock: Clock) -> None:
        self._options, self._login, self._clock = options, login, clock
        self._logs = options.data / "log"
        self._logs.mkdir(exist_ok=True)
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, Child] = {}
        self._failures: dict[str, int] = {}
        self._due: dict[str, tuple[float, Program]] = {}
        self._after_kernels: list[Program] = []
        self._stops = 0
        self._deaths_of_damage = 0  # of programs that were forgotten
        self._has_told_damage = False

    def run(self) -> None:
        """Start all programs and loop until a signal requests a stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._count_stop)
        try:
            self._start_all()
            self._wait_until_ready()
            while self._options.json and KERNELS in self._children and not self._stops:
                self._turn()
            if not self._stops:
                self._tell_ready()
            while not self._stops:
                self._turn()
        finally:
            self._stop()

    def _start_all(self) -> None:
        """Start all programs; where kernels are to be compiled, that instead of all but the web server."""
        due = programs(self._options, self._login["agent_token"] if self._options.agent else None)
        withdraw_compilation(self._options.data)  # of a start that was killed
        if self._login.get("kernels_later"):
            announce_compilation(self._options.data, kernels=self._login["kernels_later"])
            self._after_kernels = [program for program in due if program.name != "web"]
            due = [*(program for program in due if program.name == "web"), kernels_program(self._options)]
        for program in due:
            self._start(program)

    def _count_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stops += 1

    def _start(self, program: Program) -> None:
        log = Log(self._logs / f"{program.name}.log")
        child = Child(program, root=ROOT, log=log, started_at=self._clock.monotonic())
        self._children[program.name] = child
        self._selector.register(child.pipe, selectors.EVENT_READ, child)
        self._note_pids()

    def _note_pids(self) -> None:
        pids = {"supervisor": os.getpid(), **{name: child.pid for name, child in self._children.items()}}
        with contextlib.suppress(OSError):  # on a full disk the processes matter more than their list
            draft = self._options.data / "processes.json.new"
            draft.write_text(json.dumps(pids) + "\n")
            draft.replace(self._options.data / "processes.json")  # who reads it sees the list of before, or all of this

    def _wait_until_ready(self) -> None:
        deadline = self._clock.monotonic() + READY_TIMEOUT_S
        while not self._stops:
            self._turn()
            if answers(self._options):
                return
            if self._clock.monotonic() > deadline or self._failures.get("web", 0) > 2:
                web = self._children.get("web")
                output = "\n".join(web.log.last_lines(12)) if web else ""
                raise CannotStart(f"{output}\nThe web server gave no answer; its log is {self._logs / 'web.log'}")

    def _tell_ready(self) -> None:
        if self._options.json:
            print(json_line(self._login), flush=True)
        else:
            print(welcome(self._login, self._options, shows_secrets=sys.stdout.isatty()), flush=True)

    def _turn(self) -> None:
        """Move output to the logs, handle programs that have ended, start those that are due."""
        for key, _ in self._selector.select(_TICK_S):
            child: Child = key.data
            if not child.drain():
                self._selector.unregister(child.pipe)
        now = self._clock.monotonic()
        for name, child in list(self._children.items()):
            if child.status() is not None and name == KERNELS:
                self._end_kernels(child)
            elif child.status() is not None:
                self._schedule_restart(name, child, now)
        self._tell_damage()
        for name, (due, program) in list(self._due.items()):
            if now >= due and not self._stops:
                del self._due[name]
                self._start(program)

    def _schedule_restart(self, name: str, child: Child, now: float) -> None:
        status, ran_s = child.status(), now - child.started_at
        self._forget(child)
        del self._children[name]
        delay = restart_delay(self._failures.get(name, 0), ran_s)
        self._failures[name] = self._failures.get(name, 0) + 1 if delay else 0
        self._due[name] = (now + delay, child.program)
        if not self._stops:
            say(f"{name} ended (status {status}) after {ran_s:.0f} s; starting it again in {delay:.0f} s")

    def _end_kernels(self, child: Child) -> None:
        """Start what waited for the kernels. Those that are missing all the same are compiled on their first use."""
        self._forget(child)
        del self._children[KERNELS]
        withdraw_compilation(self._options.data)
        if self._stops:
            return
        failed = f"kernels could not be compiled (status {child.status()}); the log is {self._logs / 'kernels.log'}"
        say(failed if child.status() else "kernels are compiled: samples are taken and read")
        waiting, self._after_kernels = self._after_kernels, []
        for program in waiting:
            self._start(program)

    def _tell_damage(self) -> None:
        """Say once that the store is damaged, when processes have ended by reading it."""
        deaths = self._deaths_of_damage + sum(child.deaths_of_damage for child in self._children.values())
        if deaths >= _DEATHS_OF_DAMAGE and not self._has_told_damage:
            self._has_told_damage = True
            say(
                f"The store in {self._options.data} is damaged: reading it ended {deaths} processes. Stop this one, and"
                " put back a copy that is whole (docs/how-to/backup.md); until then what needs the damaged part fails."
            )

    def _forget(self, child: Child) -> None:
        ended_by_it = -(child.status() or 0) in SIGNALS_OF_DAMAGE
        self._deaths_of_damage += max(child.deaths_of_damage, int(ended_by_it))
        if child.pipe.fileno() in {key.fd for key in self._selector.get_map().values()}:
            self._selector.unregister(child.pipe)
        child.end()

    def _stop(self) -> None:
        """Stop every child, the last started first; kill those that still run after the grace period."""
        say("stopping")
        self._stops = max(self._stops, 1)
        for child in reversed(self._children.values()):
            child.ask_to_stop()
        deadline = self._clock.monotonic() + STOP_GRACE_S
        while self._children and self._clock.monotonic() < deadline and self._stops < 2:
            self._turn()
        for child in self._children.values():
            self._forget(child)
        withdraw_compilation(self._options.data)
        (self._options.data / "processes.json").unlink(missing_ok=True)


def answers(options: Options) -> bool:
    """Whether the web server answers."""
    connection = http.client.HTTPConnection(options.address, options.port, timeout=10)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    os.umask(0o077)  # what this process and its children write is their user's alone
    read_dotenv(ROOT)
    sys.exit(main(sys.argv[1:], os.environ))
