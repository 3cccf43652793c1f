"""`python -m tests.spm.query.promql.promqltest PATH…`: run scripts, list what did not pass, and count.

Ends with 1 when fewer than `--least` percent (95) of the cases about floats passed. `--skipped` lists skipped ones too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.spm.query.promql.promqltest.case import Outcome, run


def main(arguments: Sequence[str]) -> int:
    """Run scripts, print failures, and return whether enough passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.spm.query.promql.promqltest")
    parser.add_argument("paths", nargs="+", type=Path, help="scripts, or folders of *.test files")
    parser.add_argument("--least", type=float, default=95.0, help="percent of the cases about floats that must pass")
    parser.add_argument("--skipped", action="store_true", help="list the skipped cases, too")
    options = parser.parse_args(arguments)
    files = [file for path in options.paths for file in (sorted(path.glob("*.test")) if path.is_dir() else [path])]
    outcomes = [outcome for file in files for outcome in run(file)]
    for outcome in outcomes:
        if outcome.problem and (options.skipped or not outcome.skipped):
            print(outcome)
    return _judged(outcomes, options.least)


def _judged(outcomes: list[Outcome], least: float) -> int:
    floats = [outcome for outcome in outcomes if not outcome.skipped]
    passed = sum(not outcome.problem for outcome in floats)
    share = 100 * passed / max(len(floats), 1)
    skipped = len(outcomes) - len(floats)
    print(f"{passed} of {len(floats)} cases about floats passed ({share:.2f} %); {skipped} others skipped")
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
