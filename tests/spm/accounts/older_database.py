"""Databases that went through every migration, one after the other, or stopped on the way."""

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


class OlderLoader(MigrationLoader):
    """Knows the migrations that were, and none that replaces others."""

    def load_disk(self) -> None:
        """Leave out those that replace others."""
        super().load_disk()
        self.disk_migrations = {key: each for key, each in self.disk_migrations.items() if not each.replaces}


def older_executor() -> MigrationExecutor:
    """Migrates forwards and back as older versions did."""
    executor = MigrationExecutor(connection)
    executor.loader = OlderLoader(connection)
    return executor
