"""Reads collectd's JSON, which its plug-ins ``amqp`` and ``write_http`` send: lists of values with their names.

    [{"values": [1, 2], "dsnames": ["rx", "tx"], "time": 1700000000.123, "host": "h",
      "plugin": "interface", "plugin_instance": "eth0", "type": "if_octets", "type_instance": ""}, …]

The metric is plugin_type (the plugin alone where both are equal), followed by _dsname unless that is "value". The
labels are host, instance (of the plugin) and type (its instance), where they are not empty. Times are seconds. A null
value is no sample. Every value is stored as it was sent, whatever its ``dstypes``: a counter becomes a rate only at the
sender (``StoreRates``). A bad list rejects only itself; its "line" is its number in the body. A compiled kernel reads
lists of known series in the form that collectd writes; ``msgspec`` reads all others, and first checks that the body is
JSON. Enter by ``parse``.
"""

import msgspec
import numpy as np

from ingest.protocols.common import naming, times
from ingest.protocols.common.line_kernels import COUNT, END, LINE, POSITION
from ingest.protocols.common.line_reader import LineReader, TimeRules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs, SeriesCache, limit_error
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import excerpt
from ingest.protocols.json.collectd_kernels import HEAD_END, HEAD_START, read_lists
from ingest.protocols.json.kernels import next_item, skip_space, value_end
from spm.arrays import I64
from spm.errors import BadMessage
from spm.limits import FUTURE_MS, JSON_COMMAS_MAX, MESSAGE_LINES_MAX, MESSAGE_SAMPLES_MAX
from spm.wire import Parsed

UNEQUAL = "values and dsnames differ in length"
_WANTED = '[{"values", "dsnames", "time", "host", "plugin", "type"}, …]'
_MAX_S = 1e20  # seconds; nanoseconds in this field are less, and 1000 times this bound is still finite


class ValueList(msgspec.Struct, gc=False):
    """One value list of collectd."""

    values: list[float | None]
    dsnames: list[str]
    time: float
    host: str
    plugin: str
    type: str
    plugin_instance: str = ""
    type_instance: str = ""


_ANY = msgspec.json.Decoder(msgspec.Raw)
_ONE = msgspec.json.Decoder(ValueList)
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


class _ListFault(Exception):
    """The reason for rejecting one list."""


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a body.

    ``BadMessage``: the body is not of this form; ``LimitExceeded``: it holds more than one message may. ``over_quota``:
    the app has more series than its quota allows, so its names must not fill the common cache.
    """
    commas = body.count(b",")
    if commas > JSON_COMMAS_MAX:
        raise limit_error("commas in one body", JSON_COMMAS_MAX)
    try:
        _ANY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not collectd's JSON", got=str(error)[:200], wanted=_WANTED) from error
    if not body.lstrip().startswith(b"["):
        raise BadMessage("not collectd's JSON", got=excerpt(body), wanted=_WANTED)
    rules = TimeRules(now_ms=now_ms, times=1, per=1, latest_ms=now_ms + FUTURE_MS)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    reader = _CollectdReader(body + b"\n", rules, generation, min(commas, MESSAGE_SAMPLES_MAX) + 1)
    reader.run()
    return reader.result()


def is_list(body: bytes) -> bool:
    """Whether a body begins as a JSON list, which no line of line protocol does."""
    return body[:64].lstrip().startswith(b"[")


class _CollectdReader(LineReader):
    """Reads one body."""

    def __init__(self, body: bytes, rules: TimeRules, generation: CacheGeneration, capacity: int) -> None:
        super().__init__(body, rules, generation, capacity)
        self._series_numbers: dict[tuple[bytes, str], int] = {}

    def run(self) -> None:
        """Read the whole list: run the kernel and, at each item that it cannot read, the exact reader."""
        known = self._generation.view()
        while self._read_plain(known) != END:
            self._check_count()
            self._read_exactly()
            known = self._generation.view()
        self._check_count()

    def _initial_state(self) -> I64:
        first = skip_space(self._bytes, skip_space(self._bytes, 0) + 1)
        return np.array([first, 1, 0, 0, 0, 0], np.int64)

    def _read_plain(self, known: KnownSeries) -> int:
        return int(
            read_lists(self._bytes, self._kernel_rules, known, self._state, self._series, self._ts, self._values)
        )

    def _read_exactly(self) -> None:
        """Read one value list: all of its values or none."""
        start = int(self._state[POSITION])
        end = int(value_end(self._bytes, start))
        item = self._body[start:end]
        try:
            self._add_list(_ONE.decode(item))
        except (_ListFault, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._reject(int(self._state[LINE]), str(error)[:200], excerpt(item))
        self._state[POSITION] = next_item(self._bytes, end)
        self._state[LINE] += 1

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._rejected > MESSAGE_LINES_MAX:
            raise limit_error("rejected lists in one body", MESSAGE_LINES_MAX)

    def _add_list(self, one: ValueList) -> None:
        if len(one.values) != len(one.dsnames):
            raise _ListFault(UNEQUAL)
        time_ms = round(1000 * max(-_MAX_S, min(one.time, _MAX_S)))
        if not 1 <= time_ms <= self._rules.latest_ms:
            early = time_ms < 1
            raise _ListFault(times.TIME_BEFORE_1970 if early else times.too_far_ahead(time_ms, self._rules.now_ms, "s"))
        numbers = self._numbers_of(one)
        samples = [(number, value) for number, value in zip(numbers, one.values, strict=True) if value is not None]
        self._write([number for number, _ in samples], time_ms, [value for _, value in samples])

    def _numbers_of(self, one: ValueList) -> list[int]:
        """Returns the series numbers of the values; checks all names before it adds new series to the cache."""
        metrics, labels = _metrics(one), _labels(one)
        start, end = int(self._state[HEAD_START]), int(self._state[HEAD_END])
        head = self._body[start:end] if start else _substitute_head(one)
        series = []
        for dsname, metric in zip(one.dsnames, metrics, strict=True):
            name = msgspec.json.encode(dsname)
            number = self._series_numbers.get((head, dsname))
            if number is None:
                number, self._budget = self._generation.resolve_field(
                    head, name, metric=metric, labels=labels, budget=self._budget
                )
                self._series_numbers[head, dsname] = number
            series.append(number)
        return series


def _substitute_head(one: ValueList) -> bytes:
    """Returns a head for a list whose text has none; the first byte keeps it apart from heads in texts."""
    names = (one.host, one.plugin, one.plugin_instance, one.type, one.type_instance)
    return b"\0" + msgspec.json.encode(names)


def _labels(one: ValueList) -> LabelPairs:
    values = {"host": one.host, "instance": one.plugin_instance, "type": one.type_instance}
    labels = [(name.encode(), value.encode()) for name, value in values.items() if value]
    if fault := naming.labels_fault(labels):
        raise _ListFault(fault)
    return labels


def _metrics(one: ValueList) -> list[bytes]:
    """Returns the metric of each value."""
    base = one.plugin if one.plugin == one.type else f"{one.plugin}_{one.type}"
    metrics = [(base if name == "value" else f"{base}_{name}").encode() for name in one.dsnames]
    if fault := next((f for f in map(naming.metric_fault, metrics) if f), None):
        raise _ListFault(fault)
    return metrics
