"""The secrets of a backup, which the settings need before they load; so this module needs no settings."""

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLES = {"pepper": "SPM_PEPPER", "secret-key": "SPM_SECRET_KEY"}  # file in the data folder → variable
FOLDER = "secrets"  # of a backup


def use_secrets_of(arguments: Sequence[str]) -> None:
    """Take the secrets of the backup that these arguments name for this process, where the environment has none.

    So the settings load in a data folder that is still empty.
    """
    for folder in map(Path, arguments):
        for name, variable in VARIABLES.items():
            path = folder / FOLDER / name
            if path.is_file() and not os.environ.get(variable):
                os.environ[variable] = path.read_text().strip()
