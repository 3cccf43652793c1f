"""Reads a file that a person imports: a dashboard of Grafana's, or a document of ours. Pure.

Enter by ``read``. A document of ours is known by its first panel's number; Grafana's panels have an ``id``. One
without panels is known by its variables, which Grafana keeps in ``templating``.
"""

import re
from collections.abc import Mapping

import orjson

from frontend.dashboards import document
from frontend.dashboards.grafana import classic
from frontend.dashboards.grafana.report import Imported, Line
from frontend.dashboards.limits import IMPORT_BYTES_MAX
from spm.errors import LimitExceeded, Refused

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # PostgreSQL takes none in a text


def read(text: str | bytes) -> Imported:
    """Return the document, with a line for each panel and variable; raises ``Refused`` for anything else."""
    size = len(text.encode("utf-8", "replace") if isinstance(text, str) else text)
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if size > IMPORT_BYTES_MAX:
        raise LimitExceeded("the file is too large", got=f"{size:,} bytes", wanted=f"{IMPORT_BYTES_MAX:,}")
    try:
        value = orjson.loads(_NUL.sub(r"\1", text))
    except orjson.JSONDecodeError as error:
        raise Refused("this is no JSON", got=str(error)) from error
    if _is_ours(value):
        own = document.check(value)
        lines = [*(Line("variable", each.name, each.kind) for each in own.variables)]
        return Imported(own, [*lines, *(Line("panel", each.title, each.kind) for each in own.panels)])
    return classic.read_value(value)


def _is_ours(value: object) -> bool:
    panels = value.get("panels") if isinstance(value, Mapping) else None
    if panels == []:
        return isinstance(value, Mapping) and "variables" in value and "elements" not in value
    return isinstance(panels, list) and isinstance(panels[0], Mapping) and "number" in panels[0]
