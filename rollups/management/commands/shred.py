"""``manage.py shred APP NUMBER``: the former name of ``erase_retracted``."""

from rollups.management.commands.erase_retracted import Command as Command
