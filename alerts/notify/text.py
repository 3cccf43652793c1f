"""A message in words: subject and plain text, from its payload alone. Pure.

Names and labels come from people and machines of the tenant: signs that end lines or steer terminals are taken out, and
everything has a length, so that no label writes a header or buries the rest.
"""

from collections.abc import Mapping
from typing import Any

from alerts.durations import spell
from spm import limits
from spm.clock import moment


def subject(payload: Mapping[str, Any]) -> str:
    """One line: state, rule, series."""
    about = series(payload["labels"])
    words = f"[{payload['state'].upper()}] {payload['name']}" + (f": {about}" if about else "")
    return _line(words, limits.MAIL_SUBJECT_CHARS_MAX)


def body(payload: Mapping[str, Any], *, rule_url: str, chart_url: str) -> str:
    """The whole message, each fact on a line of its own."""
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
    """Metric and labels on one line."""
    name = labels.get("__name__", "")
    rest = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__")
    return f"{name} {rest}".strip()


def time_text(at_ms: int) -> str:
    """A time as people read it."""
    return moment(at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _facts(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    wanted = f"{payload['comparator']} {_number(payload['threshold'])}" if payload["comparator"] else ""
    held = f" for {spell(payload['for_ms'])}" if payload["for_ms"] else ""
    return [
        ("State", payload["state"]),
        ("Severity", payload["severity"]),
        ("App", payload["app_name"]),
        ("Series", series(payload["labels"])),
        ("Value", _number(payload["value"])),
        ("Threshold", f"{wanted}{held}".strip()),
        ("Time", time_text(payload["at_ms"])),
        ("Began", time_text(payload["episode_ms"])),
        ("Expression", payload["expr"]),
        ("Because", payload["reason"]),
    ]


def _number(text: str) -> str:
    value = float(text)
    return f"{value:.6g}"


def _line(text: str, most: int = limits.MAIL_LINE_CHARS_MAX) -> str:
    """One line of printable signs, cut where it gets too long."""
    clean = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return clean if len(clean) <= most else clean[: most - 1] + "…"
