#!/usr/bin/env python
"""Django's command line. ``bin/manage`` runs it in the project's own environment."""

import os
import sys

from django.core.management import execute_from_command_line

from spm.backup.secrets import use_secrets_of

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "spm.settings")
    if sys.argv[1:2] == ["restore"]:  # into an empty data folder, which has no secrets yet
        use_secrets_of(sys.argv[2:])
    execute_from_command_line(sys.argv)
