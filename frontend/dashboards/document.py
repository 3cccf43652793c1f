"""The document of a dashboard: what is saved of it, as JSON, and what it must look like.

Panels stand on a grid of ``COLUMNS`` columns. Their numbers stay for good: versions are compared and merged by them.
Enter by ``parse`` for JSON of people and programs, ``from_dict`` for what was checked. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from frontend.dashboards.limits import (
    COLUMNS,
    HEIGHT_MAX,
    IMPORT_BYTES_MAX,
    NAME_CHARS_MAX,
    OPTIONS_MAX,
    PANELS_MAX,
    QUERIES_MAX,
    REGEX_CHARS_MAX,
    ROWS_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
    VALUE_CHARS_MAX,
    VARIABLES_MAX,
)
from spm.errors import LimitExceeded, Refused
from spm.limits import QUERY_TEXT_CHARS_MAX

KINDS = ("line", "area", "bars", "heatmap", "states", "stat", "gauge", "toplist", "table", "text", "row")
UNITS = ("", "percent", "bytes", "bytes/s", "bits/s", "seconds")
CALCULATIONS = ("last", "avg", "min", "max", "sum", "first")
VARIABLE_KINDS = ("query", "custom", "interval", "constant", "text")
_SHOWN_CHARS = 60  # of a wrong value in a sentence


def _freeze(value: object, *names: str) -> None:
    """Make tuples of lists: a merge compares documents from several origins."""
    for name in names:
        object.__setattr__(value, name, tuple(getattr(value, name)))


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """An expression, and how its series are named: ``{{label}}`` stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """A panel: its place on the grid, its queries, and how their answers are shown.

    ``repeat`` names a variable: the panel is drawn once for each chosen value of it. ``folded``, of a row: the panels
    below it, up to the next row, are hidden until somebody opens it.
    """

    number: int
    kind: str = "line"
    title: str = ""
    description: str = ""
    unit: str = ""
    calculation: str = "last"
    x: int = 0
    y: int = 0
    w: int = 12
    h: int = 8
    queries: Sequence[PanelQuery] = ()
    text: str = ""
    repeat: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        _freeze(self, "queries")


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """A variable. ``values``: those chosen at first; ``regex`` picks a part of what a query finds."""

    name: str
    kind: str = "query"
    label: str = ""
    query: str = ""
    regex: str = ""
    values: Sequence[str] = ()
    multi: bool = False
    all: bool = False
    all_value: str = ""
    hidden: bool = False

    def __post_init__(self) -> None:
        _freeze(self, "values")


@dataclass(frozen=True, slots=True)
class Document:
    """A dashboard as it is saved."""

    title: str
    description: str = ""
    tags: Sequence[str] = ()
    variables: Sequence[VariableSpec] = ()
    panels: Sequence[PanelSpec] = ()

    def __post_init__(self) -> None:
        _freeze(self, "tags", "variables", "panels")

    def as_dict(self) -> dict[str, Any]:
        """Return what is stored and sent."""
        return asdict(self)

    def panel(self, number: int) -> PanelSpec | None:
        """Return the panel of this number."""
        return next((each for each in self.panels if each.number == number), None)

    @property
    def next_number(self) -> int:
        """A number that no panel has."""
        return max((each.number for each in self.panels), default=0) + 1

    @property
    def bottom(self) -> int:
        """The first free row of the grid."""
        return max((each.y + each.h for each in self.panels), default=0)


def parse(text: str | bytes) -> Document:
    """Read a document that a person or a program wrote; raises ``Refused`` with the place of the first mistake."""
    if len(text) > IMPORT_BYTES_MAX:  # indented; without that, storage.save has a bound
        raise LimitExceeded("the JSON is too large", got=f"{len(text):,} signs", wanted=f"{IMPORT_BYTES_MAX:,}")
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise Refused("this is no JSON", got=str(error)) from error
    return check(value)


def check(value: object) -> Document:
    """Read a document from JSON's values."""
    top = _Reader(value, "the dashboard")
    panels = [_panel(each) for each in top.items("panels", PANELS_MAX)]
    numbers = [each.number for each in panels]
    if len(set(numbers)) != len(numbers):
        raise Refused("two panels have one number", got=next(each for each in numbers if numbers.count(each) > 1))
    variables = [_variable(each) for each in top.items("variables", VARIABLES_MAX)]
    names = [each.name for each in variables]
    if len(set(names)) != len(names):
        raise Refused("two variables have one name", got=next(each for each in names if names.count(each) > 1))
    tags = top.texts("tags", TAGS_MAX, TAG_CHARS_MAX)
    title = top.text("title", TITLE_CHARS_MAX).strip()
    if not title:
        raise Refused("a dashboard needs a title")
    return Document(title, top.text("description", TEXT_CHARS_MAX), tags, variables, panels)


def from_dict(value: Mapping[str, Any]) -> Document:
    """Read a stored document."""
    return Document(
        **{
            **value,
            "variables": [VariableSpec(**each) for each in value["variables"]],
            "panels": [
                PanelSpec(**{**each, "queries": [PanelQuery(**query) for query in each["queries"]]})
                for each in value["panels"]
            ],
        }
    )


def _panel(at: "_Reader") -> PanelSpec:
    width = at.number("w", 1, COLUMNS, 12)
    return PanelSpec(
        number=at.number("number", 1, 1_000_000, None),
        kind=at.choice("kind", KINDS),
        title=at.text("title", TITLE_CHARS_MAX),
        description=at.text("description", TEXT_CHARS_MAX),
        unit=at.choice("unit", UNITS),
        calculation=at.choice("calculation", CALCULATIONS),
        x=at.number("x", 0, COLUMNS - width, 0),
        y=at.number("y", 0, ROWS_MAX, 0),
        w=width,
        h=at.number("h", 1, HEIGHT_MAX, 8),
        queries=[
            PanelQuery(each.text("expr", QUERY_TEXT_CHARS_MAX), each.text("legend", TITLE_CHARS_MAX))
            for each in at.items("queries", QUERIES_MAX)
        ],
        text=at.text("text", TEXT_CHARS_MAX),
        repeat=at.text("repeat", NAME_CHARS_MAX),
        folded=at.flag("folded"),
    )


def _variable(at: "_Reader") -> VariableSpec:
    name = at.text("name", NAME_CHARS_MAX)
    if not name.isidentifier() or name.startswith("__"):
        raise Refused(f"{at.place} has no name", got=name or "nothing", wanted="letters, digits and _, not __ at first")
    return VariableSpec(
        name=name,
        kind=at.choice("kind", VARIABLE_KINDS),
        label=at.text("label", TITLE_CHARS_MAX),
        query=at.text("query", QUERY_TEXT_CHARS_MAX),
        regex=at.text("regex", REGEX_CHARS_MAX),
        values=at.texts("values", OPTIONS_MAX, VALUE_CHARS_MAX),
        multi=at.flag("multi"),
        all=at.flag("all"),
        all_value=at.text("all_value", VALUE_CHARS_MAX),
        hidden=at.flag("hidden"),
    )


class _Reader:
    """Reads the fields of one JSON object, and says where a wrong one stands."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise Refused(f"{place} is no JSON object", got=type(value).__name__)
        self._value, self.place = value, place

    def values(self, name: str, most: int) -> list[Any]:
        """Read a list; nothing is an empty one."""
        value = self._value.get(name, [])
        if not isinstance(value, list | tuple):
            raise Refused(f"{name} of {self.place} is no list", got=type(value).__name__)
        if len(value) > most:
            raise LimitExceeded(f"{self.place} has too many {name}", got=len(value), wanted=f"at most {most}")
        return list(value)

    def items(self, name: str, most: int) -> list["_Reader"]:
        """Read a list of objects."""
        return [_Reader(each, f"{name}[{at}] of {self.place}") for at, each in enumerate(self.values(name, most))]

    def text(self, name: str, most: int) -> str:
        """Read a text; nothing is an empty one."""
        return self._checked(name, self._value.get(name, ""), most)

    def texts(self, name: str, count: int, most: int) -> list[str]:
        """Read a list of texts."""
        return [self._checked(name, each, most) for each in self.values(name, count)]

    def _checked(self, name: str, value: object, most: int) -> str:
        if not isinstance(value, str):
            raise Refused(f"{name} of {self.place} is no text", got=type(value).__name__)
        if len(value) > most:
            raise LimitExceeded(f"{name} of {self.place} is too long", got=len(value), wanted=f"at most {most} signs")
        if "\0" in value:
            raise Refused(f"{name} of {self.place} holds a NUL, which PostgreSQL takes in no text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused(f"{name} of {self.place} holds half a sign of UTF-16, which no text can") from error
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        """Read one of the known words; nothing is the first one."""
        value = self._value.get(name, known[0])
        if value not in known:
            raise Refused(
                f"{name} of {self.place} is unknown", got=_shown(value), wanted=", ".join(filter(None, known))
            )
        return str(value)

    def number(self, name: str, least: int, most: int, default: int | None) -> int:
        """Read a whole number."""
        value = self._value.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Refused(f"{name} of {self.place} is out of range", got=_shown(value), wanted=f"{least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        """Read true or false; nothing is false."""
        value = self._value.get(name, False)
        if not isinstance(value, bool):
            raise Refused(f"{name} of {self.place} is neither true nor false", got=_shown(value))
        return value


def _shown(value: object) -> str:
    """Write a value for a sentence about it: a short one as it is, of others the beginning or the type."""
    if isinstance(value, list | dict):
        return type(value).__name__  # it may be deeper than can be written
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
