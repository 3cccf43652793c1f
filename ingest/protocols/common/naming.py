"""The rules for names of metrics and labels, and the reason text for each broken rule.

Every protocol uses them, so that a series which is rejected in one protocol is rejected in all. Functions take bytes
(UTF-8) and return the reason of a rejection or ``None``. They never raise and never change their arguments.
"""

from collections.abc import Sequence

from spm.limits import LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, METRIC_BYTES_MAX

METRIC_LABEL = b"__name__"  # PromQL's name for the metric; no query could select a label of that name

NO_METRIC = "the metric has no name"
METRIC_TOO_LONG = f"the metric's name is longer than {METRIC_BYTES_MAX} bytes"
NOT_UTF8 = "a name or label is not UTF-8"
NO_LABEL_NAME = "a label has no name"
NO_LABEL_VALUE = "a label has no value"
LABEL_NAME_TOO_LONG = f"a label's name is longer than {LABEL_NAME_BYTES_MAX} bytes"
LABEL_VALUE_TOO_LONG = f"a label's value is longer than {LABEL_VALUE_BYTES_MAX} bytes"
LABEL_RESERVED = "the label __name__ is reserved for the metric"
LABEL_REPEATED = "a label is named twice"
TOO_MANY_LABELS = f"more than {LABELS_MAX} labels"


def is_utf8(raw: bytes) -> bool:
    """Whether these bytes are valid UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def metric_fault(metric: bytes) -> str | None:
    """Returns why this is no valid name of a metric, or ``None``."""
    if not metric:
        return NO_METRIC
    if len(metric) > METRIC_BYTES_MAX:
        return METRIC_TOO_LONG
    return None if is_utf8(metric) else NOT_UTF8


def label_fault(name: bytes, value: bytes) -> str | None:
    """Returns why this is no valid label of a series, or ``None``."""
    if not name:
        return NO_LABEL_NAME
    if not value:
        return NO_LABEL_VALUE
    if len(name) > LABEL_NAME_BYTES_MAX:
        return LABEL_NAME_TOO_LONG
    if len(value) > LABEL_VALUE_BYTES_MAX:
        return LABEL_VALUE_TOO_LONG
    if name == METRIC_LABEL:
        return LABEL_RESERVED
    return None if is_utf8(name) and is_utf8(value) else NOT_UTF8


def labels_fault(labels: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Returns the first reason why these are no valid labels of a series: of one label, else of all together."""
    for name, value in labels:
        if fault := label_fault(name, value):
            return fault
    if len({name for name, _ in labels}) < len(labels):
        return LABEL_REPEATED
    return TOO_MANY_LABELS if len(labels) > LABELS_MAX else None
