"""The matchers of a silence of alerts like one alert, as people would write them."""

import json
import re
from collections.abc import Mapping

from alerts.telling import limits

_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def matchers_of(labels: Mapping[str, str]) -> list[str]:
    """Return the matchers that select an alert with these labels: its name, its app, then others up to the bounds."""
    first = [name for name in ("alertname", "app") if name in labels]
    chosen, size = list[str](), 0
    for name in [*first, *sorted(set(labels) - set(first))]:
        shown = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        text = f"{shown}={json.dumps(labels[name], ensure_ascii=False)}"
        if len(chosen) < limits.MATCHERS_MAX and size + len(text) <= limits.MATCHERS_CHARS_MAX:
            chosen.append(text)
            size += len(text) + len(", ")
    return chosen
