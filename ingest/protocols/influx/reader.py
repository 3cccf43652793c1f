"""Influx line protocol: the bytes of a body become a ``Parsed``.

Enter by ``parse``. A field's metric is measurement_field, and the measurement alone for a field named ``value``; so two
spellings that join to the same text are the same metric. Tags become labels in any order. Times are whole numbers in
the given precision, kept as ms, rounded down; a line without one gets the server's time. One bad line refuses itself.
A text beside numbers refuses nothing, since agents report such with every message: a body's first one is told.
The compiled kernel reads what is plain and known; ``line_exact`` reads the rest and holds the whole grammar.
"""

from dataclasses import replace

from ingest.protocols.common.line_kernels import LINE, POSITION
from ingest.protocols.common.line_reader import Reading, Rules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import STRING_FIELD, read_line
from ingest.protocols.influx.kernels import read_lines
from spm.errors import BadMessage
from spm.limits import FUTURE_MS
from spm.wire import Parsed, Rejection

_PRECISIONS = {  # name → (times, per): ms = raw × times // per
    **dict.fromkeys(("", "n", "ns", "nanosecond"), (1, 1_000_000)),
    **dict.fromkeys(("u", "us", "µ", "µs", "microsecond"), (1, 1_000)),
    **dict.fromkeys(("ms", "millisecond"), (1, 1)),
    **dict.fromkeys(("s", "second"), (1_000, 1)),
    "m": (60_000, 1),
    "h": (3_600_000, 1),
}
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


def unit_of(precision: str) -> str:
    """The unit of times in a precision, as ``times`` calls it; that of minutes and hours nobody mistakes."""
    times, per = _PRECISIONS.get(precision, (1, 1))
    return Rules(0, times, per, 0).unit or "s"


def parse(
    body: bytes, *, now_ms: int, precision: str = "ns", over_quota: bool = False, cache: SeriesCache | None = None
) -> Parsed:
    """All samples of a body, in its order. ``BadMessage``: unknown precision; ``LimitExceeded``: a body too rich.

    ``over_quota``: the app has more series than its quota allows; its names must not fill the common cache.
    """
    cache = cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)
    if precision not in _PRECISIONS:
        raise BadMessage(
            "unknown precision", got=precision[:20], wanted="one of ns, us, ms, s, m, h", remedy="Leave it out for ns."
        )
    times, per = _PRECISIONS[precision]
    rules = Rules(now_ms=now_ms, times=times, per=per, latest_ms=now_ms + FUTURE_MS)
    reading = _Reading(body if body.endswith(b"\n") else body + b"\n", rules, cache.generation())
    reading.run()
    return reading.parsed()


class _Reading(Reading):
    """One body of line protocol."""

    _text: Rejection | None = None  # the first that was left out beside numbers

    def parsed(self) -> Parsed:
        """What the body gave; a text that was left out is told behind all that was refused."""
        parsed = super().parsed()
        return replace(parsed, rejections=(*parsed.rejections, self._text)) if self._text else parsed

    def _read_plain(self, known: KnownSeries) -> int:
        return int(read_lines(self._bytes, self._numbers, known, self._state, self._series, self._ts, self._values))

    def _read_exactly(self) -> None:
        line = read_line(self._body, int(self._state[POSITION]), self._rules)
        number = int(self._state[LINE])
        for reason, example in line.faults:
            if reason == STRING_FIELD and line.names:
                self._text = self._text or Rejection(number, reason, example)
            else:
                self._reject(number, reason, example)
        if line.names:
            self._keep(
                line.head,
                measurement=line.measurement,
                tags=line.tags,
                names=line.names,
                values=line.values,
                time_ms=line.time_ms,
            )
        self._state[POSITION] = line.after
        self._state[LINE] += line.newlines
