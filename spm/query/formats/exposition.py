"""Writes series in the text exposition format that Prometheus scrapes: names, labels, values, times in ms.

A name or label outside the legacy character set is quoted within the braces, as in Prometheus 3; for readers that do
not support this, `with_plain_names` replaces the other characters. Numbers are written as columns, not line by line.
Enter by `sample_lines`; `series_text` writes the part of a line before the value.
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
    """Write the name and labels of a series, the part of a line before its value."""
    name = labels.get(METRIC_NAME, "")
    parts = [f"{_label_name(n)}={quote(v)}" for n, v in sorted(labels.items()) if n != METRIC_NAME]
    if not _METRIC.fullmatch(name):
        parts.insert(0, quote(name))
        name = ""
    return f"{name}{{{','.join(parts)}}}" if parts else name


def name_text(metric: str) -> str:
    """Write the name of a metric for a comment line."""
    return metric if _METRIC.fullmatch(metric) else quote(metric)


def with_plain_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Replace characters outside the legacy set by `_`; of labels that get equal names the last one remains."""
    plain = {_NOT_IN_LABEL.sub("_", name): value for name, value in sorted(labels.items())}
    return {**plain, METRIC_NAME: _NOT_IN_METRIC.sub("_", labels.get(METRIC_NAME, ""))}


def sample_lines(labels: Mapping[str, str], ts: I64, values: F64, *, seconds: bool = False) -> bytes:
    """Write the samples of a series, one per line; times in ms, or in seconds with a fraction."""
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


def quote(text: str) -> str:
    """Quote a label value."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _label_name(name: str) -> str:
    return name if _LABEL.fullmatch(name) else quote(name)
