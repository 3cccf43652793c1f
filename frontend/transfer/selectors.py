"""Parses a series in Prometheus' text format into its labels: plain names and quoted ones."""

import re

from spm.errors import BadMessage
from spm.query.request.batches import METRIC_NAME

_NAME = re.compile(r"\s*([^\s{\"]+)?\s*(?:\{(.*)\})?\s*", re.DOTALL)
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PAIR = re.compile(rf"\s*(?:([^\s=,\"{{}}]+)|{_QUOTED})\s*(?:=\s*{_QUOTED})?\s*(?:,|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_CHARS = {"n": "\n", '"': '"', "\\": "\\"}
_CHARS_SHOWN = 80


def series_of(text: str) -> dict[str, str]:
    """Return the labels, including the metric's name; raises `BadMessage` if the text is not a series."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise _no_series(text)
    labels = {METRIC_NAME: match[1]} if match[1] else {}
    inside, at = match[2] or "", 0
    while inside[at:].strip():
        pair = _PAIR.match(inside, at)
        if pair is None:
            raise _no_series(text)
        name, value = (pair[1] if pair[2] is None else _plain(pair[2])), pair[3]
        if value is None:  # a quoted name without a value is the metric's name
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
    return _ESCAPE.sub(lambda match: _ESCAPED_CHARS.get(match[1], match[0]), text)


def _no_series(text: str) -> BadMessage:
    return BadMessage("not a series", got=text[:_CHARS_SHOWN], wanted='name{label="value",…}')
