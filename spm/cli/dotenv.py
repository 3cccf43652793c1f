"""Reads ``.env`` into the environment, where this process, those it starts and Spark find it. Enter by ``read_dotenv``.

Values are taken as they stand: ``$`` means nothing in them, so that a password needs no care, and the shell scripts in
``bin/`` read the same.
"""

import os
from pathlib import Path

from dotenv import load_dotenv


def read_dotenv(root: Path) -> None:
    """Set the variables of ``.env`` in ``root``, or of the file that ``SPM_DOTENV`` names, which are not set yet."""
    load_dotenv(os.environ.get("SPM_DOTENV") or root / ".env", interpolate=False)
