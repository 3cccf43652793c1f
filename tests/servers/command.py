"""What ``bin/stack`` does: the real servers of one data folder, up, down, or shown.

``up`` starts what does not run and prints the settings that make the product use it; servers keep their data and their
ports from one time to the next, and ``up`` without options keeps to what was chosen before. ``install`` fetches what
they need and says what is missing.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.servers import prepare
from tests.servers.java import jars
from tests.servers.processes import NotReady
from tests.servers.whole import OPTIONAL, RUNS, Chosen, Stack

ROOT = Path(__file__).resolve().parents[2]
NOT_RUNNING = 3  # the exit code of `status` unless all of them run


def main(words: list[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bin/stack", description="The servers of the full stack, on 127.0.0.1")
    parser.add_argument("verb", choices=["up", "down", "status", "install"])
    parser.add_argument("--data", type=Path, default=ROOT / "var" / "stack", help="where they keep everything")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--cluster", dest="cluster", action="store_true", default=None, help="HBase in seven processes")
    form.add_argument("--light", dest="cluster", action="store_false", default=None, help="HBase in two (the default)")
    parser.add_argument("--without", choices=OPTIONAL, action="append", help="leave one out; may be repeated")
    parser.add_argument("--site", help="where the web server will answer the broker")
    given = parser.parse_args(words)
    if given.verb == "install":
        return prepare.main()
    try:
        stack = Stack.at(given.data.absolute(), lambda chosen: _chosen(chosen, given))
        return {"up": _up, "down": _down, "status": _status}[given.verb](stack)
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1


def _chosen(chosen: Chosen, given: argparse.Namespace) -> Chosen:
    return replace(
        chosen,
        cluster=chosen.cluster if given.cluster is None else given.cluster,
        without=chosen.without if given.without is None else tuple(given.without),
        site=given.site or chosen.site,
    )


def _up(stack: Stack) -> int:
    jars.resolve()
    stack.up(lambda text: print(text, file=sys.stderr, flush=True))
    return _status(stack)


def _down(stack: Stack) -> int:
    stack.down()
    return 0


def _status(stack: Stack) -> int:
    states = stack.states()
    print("\n".join(_lines(stack, states)))
    return 0 if set(states.values()) == {RUNS} else NOT_RUNNING


def _lines(stack: Stack, states: dict[str, str]) -> Iterator[str]:
    """A comment for each server; the settings, once all of them run."""
    for name, server in stack.servers.items():
        where = f"at {server.url}" if states[name] == RUNS else "bin/stack up starts it"
        yield f"# {name:10} {states[name]}, {where}; data in {server.folder}"
    if set(states.values()) == {RUNS}:
        yield from (f"{name}={value}" for name, value in stack.settings().items())


if __name__ == "__main__":
    sys.exit(main())
