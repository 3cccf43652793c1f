"""``spm-agent`` (``python -m ingest.agent``): one command each, ``run`` if there is none.

run                 collect metrics of this host and push them, until a signal stops it
doctor              check everything the agent needs; exit code 1 if anything is wrong
discover            list the services on this host that can be watched
once                collect once, and print the points as line protocol
install --print     print a unit for systemd
version             print the version
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from ingest.agent import discover, doctor, install
from ingest.agent.app import AgentApp, ConfigSource, collect_once
from ingest.agent.lines import render
from ingest.agent.settings import config
from ingest.agent.version import VERSION
from spm.clock import SystemClock
from spm.errors import SpmError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 for success, 1 for a failed check, 2 for wrong settings or an unusable spool."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given.pop(0) if given and not given[0].startswith("-") else "run"
    if command not in _COMMANDS or "-h" in given or "--help" in given:
        print(__doc__, file=sys.stderr)
        config.flag_parser("spm-agent [COMMAND]").print_help(sys.stderr)
        return 0 if command in _COMMANDS else 2
    try:
        return _COMMANDS[command](given)
    except (SpmError, OSError) as error:
        print(f"spm-agent: {error}", file=sys.stderr)
        return 2


def _run(given: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = AgentApp(ConfigSource(given, os.environ), SystemClock())
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    own = app.config
    logging.getLogger("spm.agent").info("version %s watches %s every %g s", VERSION, own.host, own.period_ms / 1_000)
    app.run(stop)
    return 0


def _doctor(given: list[str]) -> int:
    own, worst = config.read(given, os.environ), 0
    for check in doctor.run_checks(own, SystemClock()):
        print(check, flush=True)
        worst |= check.state == doctor.WRONG
    print("Something is wrong: see the lines that begin with ✗." if worst else "Everything is fine.")
    return int(worst)


def _discover(given: list[str]) -> int:
    own = config.read(given, os.environ, need_token=False)
    services = discover.discover_services(off=own.off, known=own.targets)
    for each in services:
        state = each.advice or (
            "watched automatically" if own.discover else "watched if it is in the configuration file"
        )
        print(f"# {each.target.name} ({each.program or 'program unknown'}): {state}\n{discover.toml_lines(each)}")
    if not services:
        print("# No service was found that can be watched. Only root sees the programs of other users.")
    return 0


def _once(given: list[str]) -> int:
    own, clock = config.read(given, os.environ, need_token=False), SystemClock()
    wrong = 0
    for name, points, problem, _ in collect_once(own, clock):
        if problem:
            print(f"spm-agent: {name}: {problem}", file=sys.stderr)
            wrong = 1
        if text := render(points, labels=own.labels, at_ms=clock.now_ms()):
            print(text.decode())
    return wrong


def _install(given: list[str]) -> int:
    if "--print" not in given:
        print("spm-agent: this command prints a unit and installs nothing: use install --print", file=sys.stderr)
        return 2
    given.remove("--print")
    print(install.systemd_unit(config.read(given, os.environ, need_token=False)), end="")
    return 0


def _version(given: list[str]) -> int:
    print(VERSION)
    return 0


_COMMANDS = {
    "run": _run,
    "doctor": _doctor,
    "discover": _discover,
    "once": _once,
    "install": _install,
    "version": _version,
}


if __name__ == "__main__":
    sys.exit(main())
