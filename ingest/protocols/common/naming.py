"""What may be called what: the rules for names of metrics and labels, and the words for each way to break them.

Every protocol asks here, so that a series refused in one form is refused in all. Functions take bytes (UTF-8) and
return the reason of a refusal or ``None``; they never raise and never change what they are given.
"""

from collections.abc import Sequence

from spm.limits import LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, METRIC_BYTES_MAX

METRIC_LABEL = b"__name__"  # PromQL calls the metric so; a label of that name could not be asked for

NO_METRIC = "the metric has no name"
METRIC_TOO_LONG = f"the metric's name is longer than {METRIC_BYTES_MAX} bytes"
NOT_UTF8 = "a name or tag is not UTF-8"
NO_TAG_NAME = "a tag has no name"
NO_TAG_VALUE = "a tag has no value"
TAG_NAME_TOO_LONG = f"a tag's name is longer than {LABEL_NAME_BYTES_MAX} bytes"
TAG_VALUE_TOO_LONG = f"a tag's value is longer than {LABEL_VALUE_BYTES_MAX} bytes"
TAG_RESERVED = "the tag __name__ is reserved for the metric"
TAG_TWICE = "a tag is named twice"
TOO_MANY_TAGS = f"more than {LABELS_MAX} tags"


def is_utf8(raw: bytes) -> bool:
    """Whether these bytes are text."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def metric_fault(metric: bytes) -> str | None:
    """Why this cannot be a metric's name."""
    if not metric:
        return NO_METRIC
    if len(metric) > METRIC_BYTES_MAX:
        return METRIC_TOO_LONG
    return None if is_utf8(metric) else NOT_UTF8


def tag_fault(name: bytes, value: bytes) -> str | None:
    """Why this cannot be one tag of a series."""
    if not name:
        return NO_TAG_NAME
    if not value:
        return NO_TAG_VALUE
    if len(name) > LABEL_NAME_BYTES_MAX:
        return TAG_NAME_TOO_LONG
    if len(value) > LABEL_VALUE_BYTES_MAX:
        return TAG_VALUE_TOO_LONG
    if name == METRIC_LABEL:
        return TAG_RESERVED
    return None if is_utf8(name) and is_utf8(value) else NOT_UTF8


def tags_fault(tags: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The first reason, tag by tag and then all together, why these cannot be the tags of a series."""
    for name, value in tags:
        if fault := tag_fault(name, value):
            return fault
    if len({name for name, _ in tags}) < len(tags):
        return TAG_TWICE
    return TOO_MANY_TAGS if len(tags) > LABELS_MAX else None
