"""Samples of a file on their way to messages: names and times checked, pieces gathered, cut where a message is full.

A message has a bounded number of samples and touches a bounded number of hours, so that no file, however it is sorted,
becomes one that the store has to refuse. Enter by `Gathering.add`; `full` and `rest` give messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ingest.protocols import naming
from ingest.protocols.line_exact import example
from ingest.protocols.times import TIME_EARLY, TIME_LATE
from spm.limits import FUTURE_MS, IMPORT_SAMPLES_AT_ONCE, IMPORT_SLOTS_AT_ONCE, REJECTIONS_MAX
from spm.query.select import METRIC_NAME
from spm.wire import F64, I32, I64, Parsed, Rejection, SeriesTable, canonical, slot_of


class Gathering:
    """What was read and not given away yet."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms, self._latest_ms = now_ms, now_ms + FUTURE_MS
        self.timeless = 0
        self._numbers: dict[bytes, int] = {}
        self._pieces: list[tuple[I32, I64, F64]] = []
        self._lines: list[int] = []  # of each piece
        self._count = self._rejected = 0
        self._rejections: list[Rejection] = []

    def add(self, line: int, labels: Mapping[str, str], ts: I64, values: F64) -> None:
        """Samples of one series."""
        name = labels.get(METRIC_NAME, "")
        tags = {label: value for label, value in labels.items() if label != METRIC_NAME and value}
        try:
            pairs = [(label.encode(), value.encode()) for label, value in tags.items()]
            fault = naming.metric_fault(name.encode()) or naming.tags_fault(pairs)
        except UnicodeEncodeError:
            fault = naming.NOT_UTF8
        if fault:
            self.refuse(line, fault, name, len(ts))
            return
        early, late = ts < 1, ts > self._latest_ms
        for wrong, reason in ((early, TIME_EARLY), (late, TIME_LATE)):
            if wrong.any():
                self.refuse(line, f"{int(wrong.sum())} of {len(ts)} samples: {reason}", name, int(wrong.sum()))
        good = ~(early | late)
        if good.any():
            number = self._numbers.setdefault(canonical(name, tags), len(self._numbers))
            self._pieces.append((np.full(int(good.sum()), number, np.int32), ts[good], values[good]))
            self._lines.append(line)
            self._count += int(good.sum())

    def refuse(self, line: int, reason: str, text: str | bytes, count: int = 1) -> None:
        """A line, or so many samples of it, that cannot be taken."""
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
            self._rejections.append(Rejection(line, reason[:200], example(raw)))

    def full(self) -> Iterator[Parsed]:
        """Messages, once there is enough for one."""
        if self._count >= IMPORT_SAMPLES_AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[Parsed]:
        """Messages of all that is there; what was refused stands in the last."""
        if self._count:
            series, ts, values = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
            forms = list(self._numbers)
            found = _Lines(np.cumsum([len(piece[1]) for piece in self._pieces]), self._lines)
            for rows in _cuts(ts):
                used, index = np.unique(series[rows], return_inverse=True)
                table = SeriesTable.from_canonical([forms[number] for number in used.tolist()])
                yield Parsed(
                    table, index.astype(np.int32), ts[rows], values[rows], timeless=self.timeless,
                    places=partial(found.of, rows),
                )  # fmt: skip
        if self._rejected:
            nothing = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0)
            yield Parsed(SeriesTable.from_canonical([]), *nothing, 0, tuple(self._rejections), self._rejected)
        self._numbers, self._pieces, self._lines, self._count, self.timeless = {}, [], [], 0, 0
        self._rejections, self._rejected = [], 0


def groups(codes: npt.NDArray[np.integer[Any]], count: int) -> list[I64]:
    """The rows of each code, in their order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])


@dataclass(frozen=True, slots=True)
class _Lines:
    """At which line of the file each sample stood: pieces end before ``ends``, and each has one line."""

    ends: I64
    lines: Sequence[int]

    def of(self, rows: I64, some: Sequence[int]) -> list[int]:
        """The lines of some of these rows."""
        return [self.lines[piece] for piece in np.searchsorted(self.ends, rows[list(some)], "right").tolist()]


def _cuts(ts: I64) -> Iterator[I64]:
    """Rows of each message, in the order of time: bounded in samples and in hours. Equal times keep their order."""
    order = np.argsort(ts, kind="stable")
    hours = slot_of(ts[order])
    rank = np.cumsum(np.diff(hours, prepend=hours[:1]) != 0)
    at = 0
    while at < len(order):
        end = min(int(np.searchsorted(rank, rank[at] + IMPORT_SLOTS_AT_ONCE)), at + IMPORT_SAMPLES_AT_ONCE)
        yield order[at:end]
        at = end
