"""Builds messages from the samples of a file: checks names and times, collects samples, and cuts full messages.

A message has a bounded number of samples and touches a bounded number of hours, so that no file, in whatever order,
gives a message that the store must refuse. Enter by `MessageBuilder.add`; `full` and `rest` return messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from frontend.transfer.body_parts import BodyPieces
from ingest.protocols.common import naming
from ingest.protocols.common.times import TIME_BEFORE_1970, TIME_TOO_FAR_AHEAD
from ingest.protocols.influx.exact import excerpt
from spm.arrays import BOOL, F64, I32, I64
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS, IMPORT_HOURS_AT_ONCE, IMPORT_SAMPLES_AT_ONCE, REJECTIONS_MAX
from spm.query.request.batches import METRIC_NAME
from spm.wire import Parsed, Rejection, SeriesTable, canonical, hour_of


class MessageBuilder:
    """Samples and rejections that are not yet in a message."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms, self._latest_ms = now_ms, now_ms + FUTURE_MS
        self.timeless = 0
        self._numbers: dict[bytes, int] = {}
        self._pieces: list[tuple[I32, I64, F64]] = []
        self._lines: list[I64] = []  # of each piece, one for each sample
        self._count = self._rejected = 0
        self._rejections: list[Rejection] = []

    def add(self, line: int | I64, labels: Mapping[str, str], ts: I64, values: F64) -> None:
        """Add samples of one series, all from one line or each from its own."""
        lines = np.full(len(ts), line) if isinstance(line, int) else line
        name = labels.get(METRIC_NAME, "")
        tags = {label: value for label, value in labels.items() if label != METRIC_NAME and value}
        try:
            pairs = [(label.encode(), value.encode()) for label, value in tags.items()]
            fault = naming.metric_fault(name.encode()) or naming.labels_fault(pairs)
        except UnicodeEncodeError:
            fault = naming.NOT_UTF8
        if fault:
            if isinstance(line, int):
                self.reject(line, fault, name, len(ts))
            else:
                self.reject_rows(line, lambda _: (fault, name))
            return
        too_early, too_far_ahead = ts < 1, ts > self._latest_ms
        for wrong, reason in ((too_early, TIME_BEFORE_1970), (too_far_ahead, TIME_TOO_FAR_AHEAD)):
            self._reject_times(line, wrong, reason, name)
        good = ~(too_early | too_far_ahead)
        if good.any():
            number = self._numbers.setdefault(canonical(name, tags), len(self._numbers))
            self._pieces.append((np.full(int(good.sum()), number, np.int32), ts[good], values[good]))
            self._lines.append(lines[good])
            self._count += int(good.sum())

    def _reject_times(self, line: int | I64, wrong: BOOL, reason: str, name: str) -> None:
        count = int(wrong.sum())
        if count and isinstance(line, int):
            self.reject(line, f"{count} of {len(wrong)} samples: {reason}", name, count)
        elif count and not isinstance(line, int):
            self.reject_rows(line[wrong], lambda _: (reason, name))

    def reject(self, line: int, reason: str, text: str | bytes, count: int = 1) -> None:
        """Reject a line, or this many samples of it."""
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
            self._rejections.append(Rejection(line, reason[:200], excerpt(raw)))

    def reject_rows(self, lines: I64, why: Callable[[int], tuple[str, str]]) -> None:
        """Reject lines of one sample each. `why` returns reason and text of the first ones, numbered from 0."""
        room = max(0, REJECTIONS_MAX - len(self._rejections))
        for at, line in enumerate(lines[:room].tolist()):
            self.reject(line, *why(at))
        self._rejected += len(lines[room:])

    def passing(
        self, lines: I64, checks: Sequence[tuple[BOOL, Callable[[int], str]]], text_of: Callable[[int], str]
    ) -> BOOL:
        """Return which rows pass all checks, and reject the others. A check is a mask and a reason for failed rows."""
        mask = np.ones(len(lines), np.bool_)
        for check, reason in checks:
            rows = np.flatnonzero(mask & ~check).tolist()
            if rows:
                why = partial(_reason_and_text, rows=rows, reason=reason, text_of=text_of)
                self.reject_rows(lines[rows], why)
                mask &= check
        return mask

    def full(self) -> Iterator[Parsed]:
        """Yield messages once there are enough samples for one."""
        if self._count >= IMPORT_SAMPLES_AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[Parsed]:
        """Yield messages of all that remains; the last one holds the rejections."""
        if self._count:
            series, ts, values = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
            forms = list(self._numbers)
            lines = np.concatenate(self._lines)
            for rows in _cuts(ts):
                used, index = np.unique(series[rows], return_inverse=True)
                table = SeriesTable.from_canonical([forms[number] for number in used.tolist()])
                yield Parsed(
                    table,
                    index.astype(np.int32),
                    ts[rows],
                    values[rows],
                    timeless=self.timeless,
                    places=partial(_lines_of, lines[rows]),
                )
        if self._rejected:
            rejections = tuple(sorted(self._rejections, key=lambda each: each.line))
            nothing = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0)
            yield Parsed(SeriesTable.from_canonical([]), *nothing, 0, rejections, self._rejected)
        self._numbers, self._pieces, self._lines, self._count, self.timeless = {}, [], [], 0, 0
        self._rejections, self._rejected = [], 0


def groups(codes: npt.NDArray[np.integer[Any]], count: int) -> list[I64]:
    """Return the rows of each code, in their order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])


def as_messages(
    read: Callable[[BodyPieces, MessageBuilder], Iterator[int]],
) -> Callable[[BodyPieces, int], Iterator[Parsed]]:
    """Turn a parser that feeds a builder, and yields the line it has reached, into one that yields messages.

    Samples before an error that ends the file are still returned; the error says from which line to continue.
    """

    def messages(pieces: BodyPieces, now_ms: int) -> Iterator[Parsed]:
        builder, line, fault = MessageBuilder(now_ms), 0, None
        try:
            for last_line in read(pieces, builder):
                line = last_line
                yield from builder.full()
        except (BadMessage, LimitExceeded) as error:
            fault = error
        yield from builder.rest()
        if fault:
            raise _with_place(fault, line) from fault

    return messages


def _with_place(fault: BadMessage | LimitExceeded, line: int) -> BadMessage | LimitExceeded:
    all_of_it = "Correct the file and send it again."
    rest = (
        f"All lines up to line {line} were read. Correct the file and send it again from line {line + 1} on (a table "
        "with its header), or all of it: accepted samples count once."
    )
    remedy = f"{fault.remedy} {rest if line else all_of_it}".strip()
    return type(fault)(fault.what, got=fault.got, wanted=fault.wanted, remedy=remedy)


def _reason_and_text(
    at: int, *, rows: Sequence[int], reason: Callable[[int], str], text_of: Callable[[int], str]
) -> tuple[str, str]:
    return reason(rows[at]), text_of(rows[at])


def _lines_of(lines: I64, some: Sequence[int]) -> list[int]:
    """Return the lines of some samples."""
    numbers: list[int] = lines[list(some)].tolist()
    return numbers


def _cuts(ts: I64) -> Iterator[I64]:
    """Yield the rows of each message in order of time, bounded in samples and hours. Equal times keep their order."""
    order = np.argsort(ts, kind="stable")
    hours = hour_of(ts[order])
    rank = np.cumsum(np.diff(hours, prepend=hours[:1]) != 0)
    at = 0
    while at < len(order):
        end = min(int(np.searchsorted(rank, rank[at] + IMPORT_HOURS_AT_ONCE)), at + IMPORT_SAMPLES_AT_ONCE)
        yield order[at:end]
        at = end
