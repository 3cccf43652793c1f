"""A series as it is written before its value in Prometheus' text, read to its labels: old names and quoted ones."""

import re

from spm.errors import BadMessage
from spm.query.request.batches import METRIC_NAME

_NAME = re.compile(r"\s*([^\s{\"]+)?\s*(?:\{(.*)\})?\s*", re.DOTALL)
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PAIR = re.compile(rf"\s*(?:([^\s=,\"{{}}]+)|{_QUOTED})\s*(?:=\s*{_QUOTED})?\s*(?:,|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SIGNS = {"n": "\n", '"': '"', "\\": "\\"}
_CHARS_SHOWN = 80


def series_of(text: str) -> dict[str, str]:
    """Labels, the metric's name among them; `BadMessage` for what is no series."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise _no_series(text)
    labels = {METRIC_NAME: found[1]} if found[1] else {}
    inside, at = found[2] or "", 0
    while inside[at:].strip():
        pair = _PAIR.match(inside, at)
        if pair is None:
            raise _no_series(text)
        name, value = (pair[1] if pair[2] is None else _plain(pair[2])), pair[3]
        if value is None:  # a quoted name alone is the metric's
            if pair[2] is None or METRIC_NAME in labels:
                raise _no_series(text)
            name, value = METRIC_NAME, pair[2]
        if name in labels:
            raise BadMessage("a label is named twice", got=text[:_CHARS_SHOWN])
        labels[name] = _plain(value)
        at = pair.end()
    if not labels.get(METRIC_NAME):
        raise BadMessage("a series has no name", got=text[:_CHARS_SHOWN])
    return {label: value for label, value in labels.items() if value}


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda sign: _SIGNS.get(sign[1], sign[0]), text)


def _no_series(text: str) -> BadMessage:
    return BadMessage("not a series", got=text[:_CHARS_SHOWN], wanted='name{label="value",…}')
