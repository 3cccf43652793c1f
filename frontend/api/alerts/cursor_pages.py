"""Pages of rows with the cursor of the next one; the query that asks for the newest ones first."""

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers

PAGE_MAX = 500
Row = TypeVar("Row", bound=Model)


class NewestFirstQuery(serializers.Serializer[Any]):
    """Which page."""

    cursor = serializers.IntegerField(
        required=False, default=None, allow_null=True, min_value=0, max_value=2**62, help_text="``next`` of a page"
    )
    limit = serializers.IntegerField(required=False, default=100, min_value=1, max_value=PAGE_MAX)


def newest_page(rows: QuerySet[Row], cursor: int | None, limit: int) -> tuple[list[Row], int | None]:
    """Return the newest rows that are older than the cursor, and the cursor of those that follow; None at the end."""
    older = rows if cursor is None else rows.filter(pk__lt=cursor)
    return cut_page(older.order_by("-pk"), limit)


def cut_page(rows: QuerySet[Row], limit: int) -> tuple[list[Row], int | None]:
    """Return the first of rows that are ordered by their number, and that of the last if others follow."""
    page = list(rows[: limit + 1])
    return page[:limit], page[limit - 1].pk if len(page) > limit else None
