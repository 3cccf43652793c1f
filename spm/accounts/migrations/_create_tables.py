"""A step of a migration that makes all tables of an app at once.

Django renders a model, and all models that refer to it, again after each ``CreateModel``: with fifty models that refer
to organisations, a new site spends ten seconds on it. Here they are rendered once, when all are known.
"""

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class CreateTables(Operation):
    """Make ``tables``, each after those that it refers to; backwards, drop them."""

    def __init__(self, tables: Sequence[CreateModel]) -> None:
        self.tables = tables

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Add the models, unrendered."""
        state.__dict__.pop("apps", None)  # a cached property: rendered when it is asked for next
        for table in self.tables:
            table.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: Any) -> None:
        """Make the tables."""
        for table in self.tables:
            table.database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: Any) -> None:
        """Drop the tables, those that refer to others first."""
        for table in reversed(self.tables):
            table.database_backwards(app_label, schema_editor, *states)

    def describe(self) -> str:
        """What it does, for the plan of a migration."""
        return "Create " + ", ".join(table.name for table in self.tables)
