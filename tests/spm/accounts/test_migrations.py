"""A new database gets all tables at once; one of any older version comes to the same tables, step by step."""

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from tests.spm.accounts.older_database import older_executor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
OURS = ("accounts", "alerts", "dashboards", "events", "ingest", "rollups")
STOPS = [
    ("accounts", "0009_store_binding"),
    ("alerts", "0010_delivery_times"),
    ("ingest", "0007_agent_twins"),
    ("rollups", "0003_spreading"),
]


def test_a_database_that_stopped_between_older_versions_comes_to_the_tables_of_a_new_one() -> None:
    new = tables()
    drop_tables()
    older_executor().migrate(STOPS)
    assert tables() != new
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    assert tables() == new
    loader = MigrationLoader(connection)
    assert set(loader.graph.leaf_nodes()) <= set(loader.applied_migrations)


def test_a_new_database_is_made_in_one_step_for_each_app() -> None:
    loader = MigrationLoader(None)
    assert sorted(label for label, _ in loader.graph.nodes if label in OURS) == sorted(OURS)


def drop_tables() -> None:
    """Leave a database as it was before any of our apps came."""
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        for name in tables():
            cascade = "CASCADE" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TABLE {connection.ops.quote_name(name)} {cascade}")
    MigrationRecorder(connection).migration_qs.filter(app__in=OURS).delete()


def tables() -> dict[str, tuple[set[object], list[str]]]:
    """By table of ours: its columns with type and whether each may be null, and its keys, indexes and constraints."""
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        ours = [name for name in names if name.partition("_")[0] in OURS]
        return {name: _table(cursor, name) for name in ours}


def _table(cursor: Any, name: str) -> tuple[set[object], list[str]]:
    columns = connection.introspection.get_table_description(cursor, name)
    constraints: Any = connection.introspection.get_constraints(cursor, name).values()
    kinds = ("primary_key", "unique", "foreign_key", "check", "index")
    return (
        {(column.name, column.type_code, column.null_ok) for column in columns},
        sorted(f"{each['columns']} {[each[kind] for kind in kinds]}" for each in constraints),
    )
