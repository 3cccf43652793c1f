"""Reads the metadata in the comments of a text body: ``# TYPE``, ``# HELP``, and OpenMetrics' ``# UNIT``.

    # HELP http_requests_total Requests by method.
    # TYPE http_requests_total counter

Only these lines are read; the loop over samples skips all comments. A family keeps its name as written. A comment of
another form has no effect. Enter by ``read_metadata``.
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
_LINES_MAX = 4 * METADATA_MESSAGE_MAX  # comments that are read: three of each family, and as many others


def read_metadata(body: bytes) -> tuple[Metadata, ...]:
    """Returns the metadata of each family once, in the order of the body. Of repeated comments the last one counts."""
    families: dict[str, dict[str, str]] = {}
    for kind, raw, text in _comments(body):
        metric = _unescape(raw)
        if metric not in families and len(families) >= METADATA_MESSAGE_MAX:
            break
        families.setdefault(metric, {})[kind] = text
    return tuple(
        Metadata(metric, _type(one.get("TYPE", "")), _help(one.get("HELP", "")), one.get("UNIT", "")[:_UNIT_CHARS_MAX])
        for metric, one in families.items()
    )


def _comments(body: bytes) -> Iterator[tuple[str, str, str]]:
    """Yields (TYPE, HELP or UNIT; metric as written; text) of each line with metadata."""
    if b"#" not in body:  # one byte is found ten times as fast as two
        return
    at = 0 if body.startswith(b"#") else body.find(b"\n#") + 1
    if at == 0 and not body.startswith(b"#"):
        return
    for _ in range(_LINES_MAX):
        match = _COMMENT.match(body, at)
        if match is not None:
            name = match[2] if match[3] is None else match[3]
            if naming.metric_fault(name) is None:
                text = (match[4] or b"").rstrip(b" \t\r")[: 4 * METADATA_HELP_CHARS_MAX]
                yield match[1].decode(), name.decode(), text.decode("utf-8", "replace")
        following = body.find(b"\n#", at)
        if following < 0:
            return
        at = following + 1


def _type(text: str) -> str:
    """Returns the type as Prometheus names it; ``untyped`` is its older name for unknown."""
    return text if text in TYPES else "unknown" if text else ""


def _help(text: str) -> str:
    return _unescape(text)[:METADATA_HELP_CHARS_MAX]


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[0]), text) if "\\" in text else text
