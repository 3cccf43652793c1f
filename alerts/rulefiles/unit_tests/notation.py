"""Series as unit tests write them: ``up{job="a"}`` and ``0+10x3 _ stale 5``. Pure."""

import math
import re

from alerts.recording.record import STALE
from spm.errors import BadMessage, BadQuery
from spm.query.promql.planning.planner import parse_selector

VALUES_MAX = 100_000  # of a series: a week of minutes is a tenth of it
_DIGITS = r"(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|Inf|NaN)"
_ITEM = re.compile(rf"(?P<start>[+-]?{_DIGITS}|_|stale)(?:(?P<step>[+-]{_DIGITS})?x(?P<times>\d{{1,9}}))?")


def series_labels(text: str) -> dict[str, str]:
    """Return the labels of a series, its name among them; raises ``BadMessage``."""
    if text.strip() in ("", "{}"):
        return {}
    try:
        matchers = parse_selector(text)
    except BadQuery as error:
        raise BadMessage(f"not a series: {error}", got=text[:100]) from error
    if any(matcher.op != "=" for matcher in matchers):
        raise BadMessage("a series has labels with =", got=text[:100])
    return {matcher.name: matcher.value for matcher in matchers}


def series_values(text: str) -> list[float | None]:
    """Return the values of a series, None where it has no sample; raises ``BadMessage``."""
    values = list[float | None]()
    for word in text.split():
        values += _item(word)
        if len(values) > VALUES_MAX:
            raise BadMessage("too many values of a series", wanted=f"at most {VALUES_MAX}")
    return values


def _item(word: str) -> list[float | None]:
    item = _ITEM.fullmatch(word)
    if item is None or (item["start"] in ("_", "stale") and item["step"]):
        raise BadMessage("not values of a series", got=word[:60], wanted="such as 5, 0+10x3, _, _x4 or stale")
    times = min(int(item["times"] or 0), VALUES_MAX + 1)
    if item["start"] == "_":
        return [None] * max(times, 1)
    start = STALE if item["start"] == "stale" else _float(item["start"])
    step = _float(item["step"] or "0")
    return [start] * (times + 1) if not item["step"] else [start + step * index for index in range(times + 1)]


def _float(text: str) -> float:
    return math.nan if text.endswith("NaN") else float(text)
