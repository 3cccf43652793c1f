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


@functools.cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="spm-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SPM_", "DATABASE"))
    }
    environment = {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "spm.settings",
        "PYTHONPATH": str(ROOT),
        "SPM_DATA": str(folder),
        "SPM_SECRET_KEY": "only for tests",
        "SPM_PEPPER": "only for tests",
        "SPM_DOTENV": os.devnull,
    }
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
    return folder / NAME
