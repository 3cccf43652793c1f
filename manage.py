#!/usr/bin/env python
"""Django's command line. ``bin/manage`` runs it in the project's own environment."""

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError

from spm.backup.secrets import use_secrets_of

_UNPREPARED = ("no such table", "does not exist")  # as SQLite and PostgreSQL say it


def run_command() -> None:
    """Run a command; say in one sentence that its data folder or its database was never prepared."""
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(str(error))
    except DatabaseError as error:
        if not any(words in str(error) for words in _UNPREPARED):
            raise
        database = settings.DATABASES["default"]["NAME"]
        sys.exit(
            f"The database {database} was never prepared. Give this command the settings that bin/start has (SPM_DATA,"
            " DATABASE_URL, or a file .env), or prepare it with `bin/manage prepare`."
        )


if __name__ == "__main__":
    os.umask(0o077)  # what it writes into the data folder is its user's alone
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")
    if sys.argv[1:2] == ["restore"]:  # into an empty data folder, which has no secrets yet
        use_secrets_of(sys.argv[2:])
    run_command()
