"""``python -m spm.cli.setup``: sets up everything beside Python packages that the product needs before it can start.

These are the data folder with its secrets, the page libraries and, for Spark, Java. Every script in ``bin`` calls it;
it takes a tenth of a second when all is done. It reports progress on standard error, and ends with one sentence and
status 1 when it fails. Enter by ``main``.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from spm.cli.console import say
from spm.cli.options import NO_SPARK
from spm.cli.preflight import CannotStart, open_data
from spm.cli.tools import java_home, page_libraries

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Set up, and return the exit status. ``--no-data`` leaves the data folder to a later start, elsewhere perhaps."""
    environment = Path(os.environ.get("SPM_ENVIRONMENT", sys.prefix))
    try:
        if "--no-data" not in arguments:
            open_data(Path(os.environ.get("SPM_DATA", ROOT / "var")))
        page_libraries(ROOT, environment, say)
        if os.environ.get("SPM_SPARK_MASTER") != NO_SPARK:
            java_home(ROOT, environment, say)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
