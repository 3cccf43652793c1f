"""Frozen bodies of notifications for tests, with what matters named."""

from typing import Any

from tests.alerts.conftest import START_MS

KEY = "7.3.1"


def line(**changes: Any) -> dict[str, Any]:
    """One line: the CPU of web-1 fires."""
    fields: dict[str, Any] = {
        "kind": "firing",
        "word": "firing",
        "perhaps": False,
        "episode": 11,
        "rule": 7,
        "name": "CPU is busy",
        "app": 3,
        "app_name": "Shop",
        "severity": "critical",
        "labels": {"__name__": "cpu", "host": "web-1"},
        "value": "97.25",
        "expr": "cpu",
        "comparator": ">",
        "threshold": "90.0",
        "for_ms": 60_000,
        "start_ms": START_MS,
        "end_ms": None,
        "end_reason": "",
    }
    return {**fields, "word": changes.get("kind", "firing"), **changes}


def body(*lines: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A notification of these lines, else of one."""
    chosen = list(lines) or [line()]
    counts: dict[str, int] = {}
    for each in chosen:
        counts[each["kind"]] = counts.get(each["kind"], 0) + 1
    fields: dict[str, Any] = {
        "key": KEY,
        "n": 1,
        "thread": KEY,
        "receivers": ["ops@example.org"],
        "at_ms": START_MS,
        "groups": [{"id": 3, "labels": {"rule": "7"}}],
        "counts": counts,
        "lines": chosen,
        "more": {},
    }
    return {**fields, **changes}
