"""``python -m spm.cli.run PROGRAM``: becomes one program of the product: web, worker, beat, agent, or ``prepare``.

The process is replaced by the program, so that its number, its signals and systemd's sockets are the program's own. The
commands are those of ``bin/start`` (``spm.cli.supervisor.programs``). Enter by ``main``; ``program_of`` is pure.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from spm.cli.dotenv import read_dotenv
from spm.cli.options import Options, parse
from spm.cli.preflight import CannotStart, cannot_write, clear_metrics, lock_data, open_data
from spm.cli.supervisor import Program, environment_of, programs

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("prepare", "web", "worker", "beat", "agent")
_BEAT = "--beat-thread"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which program to become, and how."""

    name: str
    beat: bool
    options: Options


def choose(arguments: Sequence[str], environ: Mapping[str, str], root: Path) -> Choice:
    """Parse the arguments; print usage and exit with status 2 for an unknown one."""
    parser = argparse.ArgumentParser(prog="bin/run", allow_abbrev=False, add_help=False)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--no-beat", action="store_true")
    known, rest = parser.parse_known_args(arguments)
    return Choice(known.program, not known.no_beat, parse(rest, environ, root))


def program_of(choice: Choice, agent_token: str | None) -> Program:
    """Return the program. Raises ``CannotStart`` for an agent without a token."""
    options = choice.options
    common = environment_of(options)
    if choice.name == "prepare":
        url = common["SPM_BASE_URL"]
        accept = ("--accept-store",) if options.accept_store else ()
        return Program("prepare", (sys.executable, "manage.py", "prepare", "--url", url, *accept), common)
    if choice.name == "beat":
        return Program("beat", (sys.executable, "-m", "spm.worker", "--beat-only"), common)
    if choice.name == "agent" and not agent_token:
        raise CannotStart(
            f"There is no token for this host's agent in {options.data}. Run bin/run prepare with the same data folder"
            " first; for another host, docs/how-to/agent.md says how to install the agent."
        )
    [program] = [each for each in programs(options, agent_token) if each.name == choice.name]
    if choice.name == "worker" and not choice.beat:
        return Program("worker", tuple(word for word in program.command if word != _BEAT), program.environ)
    return program


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Become the program; returns only when it cannot start."""
    choice = choose(arguments, environ, ROOT)
    data = choice.options.data
    try:
        open_data(data)
        if choice.name == "web":
            os.set_inheritable(lock_data(data), True)  # as long as the web server lives
            clear_metrics(data)
        token = data / "agent-token"
        program = program_of(choice, token.read_text().strip() if token.is_file() else None)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(cannot_write(data, error), file=sys.stderr)
        return 1
    os.chdir(ROOT)
    return become(program, environ)


def become(program: Program, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the program."""
    os.execve(program.command[0], program.command, {**environ, **program.environ})


if __name__ == "__main__":
    read_dotenv(ROOT)
    sys.exit(main(sys.argv[1:], os.environ))
