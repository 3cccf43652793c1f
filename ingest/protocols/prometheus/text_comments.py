"""What the comments of a text body say about metrics: ``# TYPE``, ``# HELP``, and OpenMetrics' ``# UNIT``.

    # HELP http_requests_total Requests by method.
    # TYPE http_requests_total counter

Only these lines are looked at; the loop over samples passes over all comments. A family keeps the name it is given.
A comment of another form says nothing and refuses nothing. Enter by ``described``.
"""

import re
from collections.abc import Iterator

from ingest.protocols.common import naming
from spm.limits import METADATA_HELP_CHARS_MAX, METADATA_MESSAGE_MAX
from spm.wire import Metadata

TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_COMMENT = re.compile(
    rb'#[ \t]++(TYPE|HELP|UNIT)[ \t]++(?:"([^"\\\n]*+(?:\\.[^"\\\n]*+)*)"|([^ \t\r\n"]++))(?:[ \t]++([^\n]*+))?'
)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}
_UNIT_CHARS_MAX = 100
_LINES_MAX = 4 * METADATA_MESSAGE_MAX  # comments looked at: three of each family, and as many of other forms


def described(body: bytes) -> tuple[Metadata, ...]:
    """Each family once, in the order of the body; what is told twice counts as told last."""
    told: dict[str, dict[str, str]] = {}
    for kind, raw, text in _comments(body):
        metric = _unescaped(raw)
        if metric not in told and len(told) >= METADATA_MESSAGE_MAX:
            break
        told.setdefault(metric, {})[kind] = text
    return tuple(
        Metadata(metric, _type(one.get("TYPE", "")), _help(one.get("HELP", "")), one.get("UNIT", "")[:_UNIT_CHARS_MAX])
        for metric, one in told.items()
    )


def _comments(body: bytes) -> Iterator[tuple[str, str, str]]:
    """(TYPE, HELP or UNIT; metric as written; what is said) of the lines that begin so."""
    at = 0 if body.startswith(b"#") else body.find(b"\n#") + 1
    if at == 0 and not body.startswith(b"#"):
        return
    for _ in range(_LINES_MAX):
        found = _COMMENT.match(body, at)
        if found is not None:
            name = found[2] if found[3] is None else found[3]
            if naming.metric_fault(name) is None:
                text = (found[4] or b"").rstrip(b" \t\r")[: 4 * METADATA_HELP_CHARS_MAX]
                yield found[1].decode(), name.decode(), text.decode("utf-8", "replace")
        following = body.find(b"\n#", at)
        if following < 0:
            return
        at = following + 1


def _type(word: str) -> str:
    """Prometheus' word for it; ``untyped`` is its older one for unknown."""
    return word if word in TYPES else "unknown" if word else ""


def _help(text: str) -> str:
    return _unescaped(text)[:METADATA_HELP_CHARS_MAX]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[0]), text) if "\\" in text else text
