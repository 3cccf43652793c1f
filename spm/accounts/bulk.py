"""Writes many rows with one statement, on SQLite and PostgreSQL, where the ORM would write one by one.

Enter by ``execute_many``; ``time_parameter`` writes a time as the database stores it. ``fitting_keys`` bounds how many
rows an app may have.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connection, models

from spm.clock import moment

Key = tuple[int, str]  # an app, and a name within it


def execute_many(statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Execute a statement once for each row of parameters, in their order."""
    with connection.cursor() as cursor:
        cursor.executemany(statement, rows)


def time_parameter(ms: int) -> Any:
    """The time of ``ms`` milliseconds since the epoch as a parameter of a statement."""
    return connection.ops.adapt_datetimefield_value(moment(ms))


def fitting_keys(model: type[models.Model], name_field: str, keys: Sequence[Key], app_max: int) -> set[Key]:
    """Of these keys those that have a row, and of the others the first ones, as long as their app has room.

    Two processes that ask at one time may exceed ``app_max`` by what both add.
    """
    table = model._meta.db_table
    pairs = ", ".join(["(%s, %s)"] * len(keys))
    with connection.cursor() as cursor:
        statement = f"SELECT app_id, {name_field} FROM {table} WHERE (app_id, {name_field}) IN (VALUES {pairs})"
        cursor.execute(statement, [part for key in keys for part in key])
        fitting: set[Key] = set(cursor.fetchall())
    news = [key for key in keys if key not in fitting]
    if news:
        of_apps = model._default_manager.filter(app_id__in={app for app, _ in news}).order_by()
        counts = dict(of_apps.values_list("app_id").annotate(models.Count("pk")))
        for key in dict.fromkeys(news):
            counts[key[0]] = counts.get(key[0], 0) + 1
            if counts[key[0]] <= app_max:
                fitting.add(key)
    return fitting
