"""Series as lines of text, as Prometheus' scrapers and importers read them: names, labels, values, times in ms.

A name or label that is not of the old alphabet is quoted within the braces, as Prometheus 3 writes it; for readers
that do not know this, `plain` gives it another name. Numbers are written as columns; a line costs no Python. Enter by
`lines`; `series_text` writes what stands before a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spm.arrays import F64, I64
from spm.query.formats.prometheus import numbers
from spm.query.request.batches import METRIC_NAME
from spm.store.encoding.arrow import ints, string

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NOT_IN_METRIC, _NOT_IN_LABEL = re.compile(r"^[0-9]|[^a-zA-Z0-9_:]"), re.compile(r"^[0-9]|[^a-zA-Z0-9_]")


def series_text(labels: Mapping[str, str]) -> str:
    """A series as it stands before its value."""
    name = labels.get(METRIC_NAME, "")
    parts = [f"{_label(n)}={quoted(v)}" for n, v in sorted(labels.items()) if n != METRIC_NAME]
    if not _METRIC.fullmatch(name):
        parts.insert(0, quoted(name))
        name = ""
    return f"{name}{{{','.join(parts)}}}" if parts else name


def name_text(metric: str) -> str:
    """The name of a metric as it stands in a comment."""
    return metric if _METRIC.fullmatch(metric) else quoted(metric)


def plain(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels in the old alphabet, with `_` for each other sign; of labels that become one the last counts."""
    found = {_NOT_IN_LABEL.sub("_", name): value for name, value in sorted(labels.items())}
    return {**found, METRIC_NAME: _NOT_IN_METRIC.sub("_", labels.get(METRIC_NAME, ""))}


def lines(labels: Mapping[str, str], ts: I64, values: F64, *, seconds: bool = False) -> bytes:
    """The samples of a series, each on a line of its own; times in ms, or in seconds with their fraction."""
    times = pc.cast(ints(np.ascontiguousarray(ts)), pa.string())
    if seconds:
        times = pc.utf8_lpad(times, width=4, padding="0")
        times = pc.replace_substring_regex(times, pattern=r"(\d{3})$", replacement=r".\1")
    texts = pc.binary_join_element_wise(
        string(series_text(labels)),
        numbers(values),
        pc.binary_join_element_wise(times, string("\n"), string("")),
        string(" "),
    )
    _, offsets, raw = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(raw)[ends[0] : ends[-1]]) if len(texts) else b""


def quoted(text: str) -> str:
    """A label's value in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _label(name: str) -> str:
    return name if _LABEL.fullmatch(name) else quoted(name)
