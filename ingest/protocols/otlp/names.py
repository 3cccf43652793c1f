"""Translates OpenTelemetry's names as Prometheus' OTLP endpoint does by default (underscores, with suffixes).

    http.server.duration, unit ms, histogram   →  http_server_duration_milliseconds (_bucket, _sum, _count)
    system.memory.usage, unit By               →  system_memory_usage_bytes
    requests, monotonic sum                    →  requests_total
    disk.utilization, unit 1, gauge            →  disk_utilization_ratio
    http.method (an attribute)                 →  http_method

Enter by ``metric_name`` and ``label_name``. Pure functions of text; both return "" if no usable name remains.
"""

import re

_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_TOKEN = re.compile(r"[A-Za-z0-9:]+")
_NOT_IN_UNIT = re.compile(r"[^A-Za-z0-9:]+")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9]+")


def metric_name(name: str, unit: str, *, counter: bool, gauge: bool) -> str:
    """Returns the metric's name: its words joined by underscores, then its unit, then ``total`` or ``ratio``."""
    words = _TOKEN.findall(name)
    main, per = _unit_words(unit)
    if main and main not in words:
        words.append(main)
    if per and per not in words:
        words.append(per)
    if counter:
        words = [word for word in words if word != "total"] + ["total"]
    if gauge and unit == "1":
        words = [word for word in words if word != "ratio"] + ["ratio"]
    joined = "_".join(words)
    return f"_{joined}" if joined[:1].isdigit() else joined


def unit_name(unit: str) -> str:
    """Returns the unit for the metadata."""
    return "_".join(part for part in _unit_words(unit) if part)


def label_name(name: str) -> str:
    """Returns the label name of an attribute: other characters than letters and digits become one underscore."""
    if len(name) >= 4 and name.startswith("__") and name.endswith("__"):
        inner = _NOT_IN_LABEL.sub("_", name[2:-2])
        return f"__{inner}__" if inner.strip("_") else ""
    label = _NOT_IN_LABEL.sub("_", name)
    if not label.strip("_"):
        return ""
    return f"key_{label}" if label[0].isdigit() else label  # a label name must not begin with a digit


def _unit_words(unit: str) -> tuple[str, str]:
    """Returns the unit's words before and after the slash. Text in braces is an annotation, not a unit."""
    before, _, after = unit.partition("/")
    main, per = ("" if set("{}") & set(part) else part.strip() for part in (before, after))
    per = _clean_unit(_PER.get(per, per))
    return _clean_unit(_UNITS.get(main, main)), f"per_{per}" if per else ""


def _clean_unit(unit: str) -> str:
    return _NOT_IN_UNIT.sub("_", unit).strip("_")
