"""A database that is migrated already, for servers whose tests are about something else.

To migrate an empty one takes seven seconds of CPU, for each of them. One is made for the whole run, and copied.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "spm.sqlite3"


def place_migrated(data: Path) -> None:
    """Put one into a data folder that has none: there is nothing left to migrate."""
    if not (data / NAME).exists():
        shutil.copy(_template(), data / NAME)


def environment_of(data: Path) -> dict[str, str]:
    """The environment of a product's program with this data folder: none of the tests' own settings."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SPM_", "DATABASE"))
    }
    return {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "spm.settings",
        "PYTHONPATH": str(ROOT),
        "SPM_DATA": str(data),
        "SPM_SECRET_KEY": "only for tests",
        "SPM_PEPPER": "only for tests",
        "SPM_DOTENV": os.devnull,
    }


@functools.cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="spm-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment_of(folder), check=True)
    return folder / NAME
