"""``python -m spm.cli.setup``: everything beside Python packages that the product needs before it can start.

Data folder and secrets, page libraries, Java. Called by every script in ``bin``; takes a tenth of a second when all is
done. Says on standard error what it does, and ends with one sentence and status 1 when it cannot.
"""

import os
import sys
from pathlib import Path

from spm.cli.console import say
from spm.cli.preflight import CannotStart, open_data
from spm.cli.tools import java_home, page_libraries

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Set up, and return the exit status."""
    environment = Path(os.environ.get("SPM_ENVIRONMENT", sys.prefix))
    try:
        open_data(Path(os.environ.get("SPM_DATA", ROOT / "var")))
        page_libraries(ROOT, environment, say)
        java_home(ROOT, environment, say)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
