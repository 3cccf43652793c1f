"""Documents and variables for tests of dashboards."""

from collections.abc import Mapping, Sequence
from typing import Any

from frontend.dashboards.document import Document, VariableSpec, check
from frontend.dashboards.variables import Variable


def document(*panels: Mapping[str, Any], **fields: Any) -> Document:
    """A document with these panels, numbered from 1."""
    numbered = [{"number": at, **panel} for at, panel in enumerate(panels, 1)]
    return check({"title": "Shop", **fields, "panels": numbered})


def chosen(name: str, *values: str, is_all: bool = False, **fields: Any) -> Variable:
    """A variable with these values."""
    return Variable(VariableSpec(name, **{"multi": len(values) > 1, **fields}), values, values, is_all=is_all)


class Catalogue:
    """Answers queries from a table, and notes them."""

    def __init__(self, answers: Mapping[str, Sequence[str]]) -> None:
        self._answers, self.queries = answers, list[str]()

    def find(self, query: str) -> list[str]:
        """Look the query up."""
        self.queries.append(query)
        return list(self._answers.get(query, ()))
