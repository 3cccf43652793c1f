"""Reads the bodies of many senders together: one call of the kernel for all costs a tenth of one call for each.

Enter by ``parse_many``. The kernel reads the bodies one after the other into common columns, of which each result is a
part. New series of plain lines are entered for all bodies at once, and these bodies read again. A body with a line for
the exact reader goes on alone from there; so do, from their start, a large body and one of
an app over its quota. An error belongs to its body and never touches another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from ingest.protocols.common.line_kernels import COUNT, POSITION, SERIES, STATES, STATUS, TIMELESS
from ingest.protocols.common.line_reader import TimeRules
from ingest.protocols.common.series_cache import CacheGeneration, SeriesCache, check_budget
from ingest.protocols.influx.kernels import read_bodies
from ingest.protocols.influx.new_series import enter_new
from ingest.protocols.influx.reader import COMMON_CACHE, InfluxReader, is_precision, parse, rules_of, with_newline
from spm.arrays import F64, I32, I64
from spm.limits import JOINED_BODY_BYTES_MAX, JOINED_BYTES_MAX, MESSAGE_SERIES_BYTES_MAX
from spm.wire import Parsed, SeriesTable

_BYTES_PER_SAMPLE = 8  # or more; a body of more samples goes on alone


@dataclass(frozen=True, slots=True)
class BodyToParse:
    """One body, with the arguments of ``reader.parse``."""

    raw: bytes
    now_ms: int
    precision: str = "ns"
    over_quota: bool = False


def parse_many(bodies: Sequence[BodyToParse], *, cache: SeriesCache | None = None) -> list[Parsed | Exception]:
    """Returns for each body what ``reader.parse`` of it alone returns, or the error that it raises."""
    results: dict[int, Parsed | Exception] = {}
    for numbers in _groups(bodies):
        generation = (cache or COMMON_CACHE).generation()
        joined = _JoinedBodies([bodies[number] for number in numbers], generation)
        places = {number: (joined, place) for place, number in enumerate(numbers)}
        if joined.enter_new():
            stopped = [numbers[place] for place in joined.stopped]
            joined = _JoinedBodies([bodies[number] for number in stopped], generation)
            places |= {number: (joined, place) for place, number in enumerate(stopped)}
        for number, (read, place) in places.items():
            try:
                results[number] = read.result(place)
            except Exception as error:  # of one body: its sender gets it, and the others their results
                results[number] = error
    return [results[number] if number in results else _alone(body, cache) for number, body in enumerate(bodies)]


def _groups(bodies: Sequence[BodyToParse]) -> Iterator[list[int]]:
    """Yields the numbers of bodies that are read together."""
    numbers: list[int] = []
    size = 0
    for number, body in enumerate(bodies):
        if len(body.raw) > JOINED_BODY_BYTES_MAX or body.over_quota or not is_precision(body.precision):
            continue
        if size + len(body.raw) > JOINED_BYTES_MAX:
            yield numbers
            numbers, size = [], 0
        numbers.append(number)
        size += len(body.raw)
    if len(numbers) > 1:
        yield numbers


def _alone(body: BodyToParse, cache: SeriesCache | None) -> Parsed | Exception:
    try:
        return parse(body.raw, now_ms=body.now_ms, precision=body.precision, over_quota=body.over_quota, cache=cache)
    except Exception as error:
        return error


class _JoinedBodies:
    """Bodies that the kernel has read, and the result of each."""

    def __init__(self, bodies: Sequence[BodyToParse], generation: CacheGeneration) -> None:
        """Read the bodies, and make one table of the series of all."""
        self._generation = generation
        self._texts = [with_newline(body.raw) for body in bodies]
        numbers: dict[tuple[int, str], int] = {}
        self._rule = [numbers.setdefault((body.now_ms, body.precision), len(numbers)) for body in bodies]
        self._rules = [rules_of(precision, now_ms) for now_ms, precision in numbers]
        self._joined = b"".join(self._texts)
        self._cuts = list(accumulate(map(len, self._texts), initial=0))
        self._kernel_rules: I64 = np.array([each.for_kernel() for each in self._rules], np.int64)
        self._states: I64 = np.zeros((len(bodies), STATES), np.int64)
        distinct = self._read()
        self.stopped = np.flatnonzero(self._states[:, STATUS]).tolist()
        counts, tables = self._states[:, COUNT].tolist(), self._states[:, SERIES].tolist()
        self._samples, self._tables = list(accumulate(counts, initial=0)), list(accumulate(tables, initial=0))
        self._timeless, self._stopped = self._states[:, TIMELESS].tolist(), self._states[:, STATUS].tolist()
        self._table, size = generation.table(distinct[: self._tables[-1]])
        self._text_fits = size <= MESSAGE_SERIES_BYTES_MAX

    def enter_new(self) -> bool:
        """Enter the new series of the bodies that the kernel has stopped in; returns whether there were any."""
        if not self.stopped:
            return False
        at, cuts = self._states[:, POSITION].tolist(), self._cuts
        spans = [(cuts[place] + at[place], cuts[place + 1], self._rule[place]) for place in self.stopped]
        return enter_new(self._generation, self._joined, spans, self._kernel_rules, MESSAGE_SERIES_BYTES_MAX)[0] > 0

    def result(self, number: int) -> Parsed:
        """Returns the result of a body; raises its error."""
        rules, text = self._rules[self._rule[number]], self._texts[number]
        samples = slice(self._samples[number], self._samples[number + 1])
        series, ts, values = self._series[samples], self._ts[samples], self._values[samples]
        if self._stopped[number]:
            reader = InfluxReader(text, rules, self._generation)
            reader.resume(self._states[number, :STATUS], series, ts, values)
            reader.run()
            return reader.result()
        rows = slice(self._tables[number], self._tables[number + 1])
        whole = self._table
        table = SeriesTable(whole.ids[rows], whole.metrics[rows], whole.text, whole.starts[rows], whole.ends[rows])
        if not self._text_fits:
            check_budget(MESSAGE_SERIES_BYTES_MAX - int((table.ends - table.starts).sum()))
        places = partial(_places, text, rules, self._generation)
        return Parsed(table, series, ts, values, self._timeless[number], places=places)

    def _read(self) -> I32:
        """Read the bodies into the columns; returns the numbers of their series, those of one after the other's."""
        capacity = len(self._joined) // _BYTES_PER_SAMPLE + 64
        self._series: I32 = np.empty(capacity, np.int32)
        self._ts: I64 = np.empty(capacity, np.int64)
        self._values: F64 = np.empty(capacity, np.float64)
        distinct: I32 = np.empty(capacity, np.int32)
        known = self._generation.view()
        scratch = self._generation.borrow_scratch()  # after the view: it has an element for each of its series
        read_bodies(
            np.frombuffer(self._joined, np.uint8),
            np.array(self._cuts, np.int64),
            self._kernel_rules,
            np.array(self._rule, np.int64),
            known,
            self._states,
            scratch,
            self._series,
            self._ts,
            self._values,
            distinct,
        )
        self._generation.return_scratch(scratch)
        return distinct


def _places(text: bytes, rules: TimeRules, generation: CacheGeneration, rows: Sequence[int]) -> list[int]:
    """Returns the lines of these samples."""
    return InfluxReader(text, rules, generation).places(rows)
