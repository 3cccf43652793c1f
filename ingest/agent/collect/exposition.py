"""Prometheus' and OpenMetrics' text form, as far as an agent needs it: names, labels, values, times.

``read`` yields a sample per line, passes over comments, and counts what is no sample instead of raising: one bad line
of an exporter must not cost the others. Exemplars (after ``#``) are dropped, and so are times of the wrong unit.
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
    """One value; ``at_ms`` where the exporter gives it a time of its own."""

    name: str
    labels: dict[str, str]
    value: float
    at_ms: int | None = None


@dataclass(slots=True)
class Page:
    """One document; ``bad`` counts its lines that are no samples, ``example`` is the first."""

    text: str
    bad: int = 0
    example: str = ""

    def samples(self, *, seconds: bool = False) -> Iterator[Sample]:
        """Every sample; ``seconds``: times are those of OpenMetrics."""
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
    """``name{label="value"} 1.5 1700000000000``; None if it is none."""
    name = _NAME.match(line)
    if name is None:
        return None
    labels, at = {}, name.end()
    if line[at : at + 1] == "{":
        at += 1
        while (label := _LABEL.match(line, at)) is not None:
            labels[label[1]] = _ESCAPED.sub(lambda found: _ESCAPES[found[0]], label[2])
            at = label.end()
        rest = line[at:].lstrip()
        if not rest.startswith("}"):
            return None
        tail = rest[1:]
    else:
        tail = line[at:]
    words = tail.partition(" # ")[0].split()
    if not 1 <= len(words) <= 2:
        return None
    try:
        value = float(words[0].replace("_", "x"))  # Python's own underscores are not in the form
        at_ms = None if len(words) == 1 else round(float(words[1]) * (1_000 if seconds else 1))
    except (ValueError, OverflowError):
        return None
    return Sample(name[0], labels, value, at_ms)
