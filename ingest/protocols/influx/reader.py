"""Reads Influx line protocol: the bytes of a body become a ``Parsed``.

Enter by ``parse``, or by ``joined.parse_many`` for the bodies of many senders. The metric of a field is
measurement_field, or the measurement alone for a field named ``value``; so two spellings that join to one text are one
metric. Tags become labels; their order does not matter. Times are integers in the given precision, stored as ms,
rounded down; a line without a time gets the server's. A bad line rejects only itself. A text field beside numbers
rejects nothing, because agents send such fields in every message; the first one of a body is reported. The compiled
kernel reads plain lines, whose new series ``new_series`` enters before; ``exact`` reads all others.
"""

from dataclasses import replace

from ingest.protocols.common.line_kernels import LINE, POSITION
from ingest.protocols.common.line_reader import LineReader, TimeRules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import STRING_FIELD, read_line
from ingest.protocols.influx.kernels import read_lines
from ingest.protocols.influx.new_series import enter_new
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
COMMON_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


def time_unit(precision: str) -> str:
    """Returns the unit of a precision, as ``times`` names it; "s" for minutes and hours, which nobody mistakes."""
    times, per = _PRECISIONS.get(precision, (1, 1))
    return TimeRules(0, times, per, 0).unit or "s"


def is_precision(name: str) -> bool:
    """Whether a precision is known."""
    return name in _PRECISIONS


def rules_of(precision: str, now_ms: int) -> TimeRules:
    """Returns how times of a known precision are read at ``now_ms``."""
    times, per = _PRECISIONS[precision]
    return TimeRules(now_ms=now_ms, times=times, per=per, latest_ms=now_ms + FUTURE_MS)


def with_newline(body: bytes) -> bytes:
    """Returns the body with a newline at its end, as readers need it."""
    return body if body.endswith(b"\n") else body + b"\n"


def parse(
    body: bytes, *, now_ms: int, precision: str = "ns", over_quota: bool = False, cache: SeriesCache | None = None
) -> Parsed:
    """Returns all samples of a body, in its order.

    ``BadMessage``: the precision is unknown; ``LimitExceeded``: the body holds more than one message may.
    ``over_quota``: the app has more series than its quota allows, so its names must not fill the common cache.
    """
    cache = cache or (_OVER_QUOTA_CACHE if over_quota else COMMON_CACHE)
    if not is_precision(precision):
        raise BadMessage(
            "unknown precision", got=precision[:20], wanted="one of ns, us, ms, s, m, h", remedy="Leave it out for ns."
        )
    reader = InfluxReader(with_newline(body), rules_of(precision, now_ms), cache.generation())
    reader.run()
    return reader.result()


class InfluxReader(LineReader):
    """One body of line protocol."""

    _text: Rejection | None = None  # the first text field that was left out beside numbers
    _searched = 0  # up to where new series of plain lines were entered

    def result(self) -> Parsed:
        """Returns the samples and rejections of the body; the report on a left-out text field comes last."""
        parsed = super().result()
        return replace(parsed, rejections=(*parsed.rejections, self._text)) if self._text else parsed

    def _read_plain(self, known: KnownSeries) -> int:
        return int(
            read_lines(self._bytes, self._kernel_rules, known, self._state, self._series, self._ts, self._values)
        )

    def _enter_new(self) -> bool:
        """Enter the new series of the next plain lines, unless that was tried already."""
        start = int(self._state[POSITION])
        if start < self._searched:
            return False
        added, self._budget, self._searched = enter_new(
            self._generation,
            self._body,
            [(start, len(self._body), 0)],
            self._kernel_rules.reshape(1, -1),
            self._budget,
        )
        return added > 0

    def _read_exactly(self) -> None:
        line = read_line(self._body, int(self._state[POSITION]), self._rules)
        number = int(self._state[LINE])
        for reason, example in line.faults:
            if reason == STRING_FIELD and line.names:
                self._text = self._text or Rejection(number, reason, example)
            else:
                self._reject(number, reason, example)
        if line.names:
            self._add_line(
                line.head,
                measurement=line.measurement,
                labels=line.tags,
                names=line.names,
                values=line.values,
                time_ms=line.time_ms,
            )
        self._state[POSITION] = line.after
        self._state[LINE] += line.newlines
