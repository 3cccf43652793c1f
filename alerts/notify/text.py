"""Writes subject and plain text of a message from its payload alone. Pure.

Names and labels come from the tenant's people and machines. Characters that end lines or control terminals are removed,
and every text has a maximum length, so that no label can write a header or hide the rest.
"""

from collections.abc import Mapping
from typing import Any

from alerts.durations import spell
from spm import limits
from spm.clock import moment


def subject(payload: Mapping[str, Any]) -> str:
    """Write the subject in one line: state, rule, series."""
    about = series(payload["labels"])
    text = f"[{payload['state'].upper()}] {payload['name']}" + (f": {about}" if about else "")
    return _line(text, limits.MAIL_SUBJECT_CHARS_MAX)


def body(payload: Mapping[str, Any], *, rule_url: str, chart_url: str) -> str:
    """Write the message, one fact per line."""
    lines = [
        _line(f"{payload['name']} is {payload['state']}."),
        "",
        *(f"{name:<11}{_line(text)}" for name, text in _facts(payload) if text),
        "",
        f"Rule:  {rule_url}",
        f"Chart: {chart_url}",
    ]
    return "\n".join(lines) + "\n"


def series(labels: Mapping[str, str]) -> str:
    """Write metric and labels on one line."""
    name = labels.get("__name__", "")
    rest = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__")
    return f"{name} {rest}".strip()


def time_text(at_ms: int) -> str:
    """Write a time in UTC."""
    return moment(at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _facts(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    bound = f"{payload['comparator']} {_number(payload['threshold'])}" if payload["comparator"] else ""
    duration = f" for {spell(payload['for_ms'])}" if payload["for_ms"] else ""
    return [
        ("State", payload["state"]),
        ("Severity", payload["severity"]),
        ("App", payload["app_name"]),
        ("Series", series(payload["labels"])),
        ("Value", _number(payload["value"])),
        ("Threshold", f"{bound}{duration}".strip()),
        ("Time", time_text(payload["at_ms"])),
        ("Began", time_text(payload["episode_ms"])),
        ("Expression", payload["expr"]),
        ("Because", payload["reason"]),
    ]


def _number(text: str) -> str:
    return f"{float(text):.6g}"


def _line(text: str, length_max: int = limits.MAIL_LINE_CHARS_MAX) -> str:
    """Reduce a text to one line of printable characters, cut at the maximum length."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return clean if len(clean) <= length_max else clean[: length_max - 1] + "…"
