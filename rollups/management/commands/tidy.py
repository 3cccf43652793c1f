"""``manage.py tidy``: the former name of ``maintain``."""

from rollups.management.commands.maintain import Command as Command
