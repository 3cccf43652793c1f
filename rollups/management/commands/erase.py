"""``manage.py erase``: the former name of ``delete_app``."""

from rollups.management.commands.delete_app import Command as Command
