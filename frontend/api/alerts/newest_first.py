"""Pages of rows, the newest first: the query that asks for one, and the rows of it with the cursor of the next."""

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


def page_of(rows: QuerySet[Row], cursor: int | None, limit: int) -> tuple[list[Row], int | None]:
    """Return the newest rows that are older than the cursor, and the cursor of those that follow; None at the end."""
    older = rows if cursor is None else rows.filter(pk__lt=cursor)
    page = list(older.order_by("-pk")[: limit + 1])
    return page[:limit], page[limit - 1].pk if len(page) > limit else None
