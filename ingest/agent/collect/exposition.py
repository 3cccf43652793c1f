"""Reads Prometheus' and OpenMetrics' text form, as far as an agent needs it: names, labels, values, times.

Enter by ``Page.samples``, which yields one sample per line and skips comments. A bad line is counted, not raised, so
that one bad line of an exporter does not cost the others. Exemplars (after ``#``) are dropped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPED = re.compile(r'\\[n"\\]')


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; ``at_ms`` is set if the exporter sends a time."""

    name: str
    labels: dict[str, str]
    value: float
    at_ms: int | None = None


@dataclass(slots=True)
class Page:
    """One document; ``bad`` counts its bad lines, ``example`` is the first of them."""

    text: str
    bad: int = 0
    example: str = ""

    def samples(self, *, seconds: bool = False) -> Iterator[Sample]:
        """Yields every sample. ``seconds``: times are in seconds, as in OpenMetrics."""
        for line in self.text.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            sample = read_line(line, seconds=seconds)
            if sample is None:
                self.bad += 1
                self.example = self.example or line[:80]
            else:
                yield sample


def read_line(line: str, *, seconds: bool = False) -> Sample | None:
    """Reads ``name{label="value"} 1.5 1700000000000``; None if the line is no sample."""
    name = _NAME.match(line)
    if name is None:
        return None
    labels, at = {}, name.end()
    if line[at : at + 1] == "{":
        at += 1
        while (label := _LABEL.match(line, at)) is not None:
            labels[label[1]] = _ESCAPED.sub(lambda escape: _ESCAPES[escape[0]], label[2])
            at = label.end()
        rest = line[at:].lstrip()
        if not rest.startswith("}"):
            return None
        tail = rest[1:]
    else:
        tail = line[at:]
    parts = tail.partition(" # ")[0].split()
    if not 1 <= len(parts) <= 2:
        return None
    try:
        value = float(parts[0].replace("_", "x"))  # the form has no underscores, but Python's float accepts them
        at_ms = None if len(parts) == 1 else round(float(parts[1]) * (1_000 if seconds else 1))
    except (ValueError, OverflowError):
        return None
    return Sample(name[0], labels, value, at_ms)
