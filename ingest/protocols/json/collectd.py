"""collectd's JSON (its plug-ins ``amqp`` and ``write_http``): lists of values with their names.

    [{"values": [1, 2], "dsnames": ["rx", "tx"], "time": 1700000000.123, "host": "h",
      "plugin": "interface", "plugin_instance": "eth0", "type": "if_octets", "type_instance": ""}, …]

The metric is plugin_type (the plugin alone where both are the same), with _dsname unless that is "value"; the labels
are host, instance (of the plugin) and type (its instance), where they are not empty. Times are seconds. A null value is
none. One bad list refuses itself; its "line" is its place. A compiled kernel reads what collectd itself writes of known
series; ``msgspec`` reads the rest and first of all says whether the body is JSON. Enter by ``parse``.
"""

import msgspec
import numpy as np

from ingest.protocols.common import naming, times
from ingest.protocols.common.line_kernels import COUNT, END, LINE, POSITION
from ingest.protocols.common.line_reader import Reading, Rules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import Generation, SeriesCache, Tags, too_much
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import example
from ingest.protocols.json.collectd_kernels import HEAD_END, HEAD_START, read_lists
from ingest.protocols.json.kernels import after_space, next_item, value_end
from spm.arrays import I64
from spm.errors import BadMessage
from spm.limits import FUTURE_MS, JSON_COMMAS_MAX, MESSAGE_LINES_MAX, MESSAGE_SAMPLES_MAX
from spm.wire import Parsed

UNEQUAL = "values and dsnames differ in length"
_WANTED = '[{"values", "dsnames", "time", "host", "plugin", "type"}, …]'
_MAX_S = 1e20  # seconds; nanoseconds in the wrong field are less, and a product with 1000 is still a number


class ValueList(msgspec.Struct, gc=False):
    """One list of values, as collectd calls it."""

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


class _Refused(Exception):
    """Why one list cannot be taken."""


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """All samples of a body. ``BadMessage``: not this form at all; ``LimitExceeded``: a body too rich.

    ``over_quota``: the app has more series than its quota allows; its names must not fill the common cache.
    """
    commas = body.count(b",")
    if commas > JSON_COMMAS_MAX:
        raise too_much("commas in one body", JSON_COMMAS_MAX)
    try:
        _ANY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not collectd's JSON", got=str(error)[:200], wanted=_WANTED) from error
    if not body.lstrip().startswith(b"["):
        raise BadMessage("not collectd's JSON", got=example(body), wanted=_WANTED)
    rules = Rules(now_ms=now_ms, times=1, per=1, latest_ms=now_ms + FUTURE_MS)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    reading = _Reading(body + b"\n", rules, generation, min(commas, MESSAGE_SAMPLES_MAX) + 1)
    reading.run()
    return reading.parsed()


def is_list(body: bytes) -> bool:
    """Whether a body begins as a JSON list: no line of line protocol does."""
    return body[:64].lstrip().startswith(b"[")


class _Reading(Reading):
    """One body on its way."""

    def __init__(self, body: bytes, rules: Rules, generation: Generation, room: int) -> None:
        super().__init__(body, rules, generation, room)
        self._seen: dict[tuple[bytes, str], int] = {}

    def run(self) -> None:
        """Kernel and exact reader take turns until the list ends."""
        known = self._generation.view()
        while self._read_plain(known) != END:
            self._check_count()
            self._read_exactly()
            known = self._generation.view()
        self._check_count()

    def _beginning(self) -> I64:
        first = after_space(self._bytes, after_space(self._bytes, 0) + 1)
        return np.array([first, 1, 0, 0, 0, 0], np.int64)

    def _read_plain(self, known: KnownSeries) -> int:
        return int(read_lists(self._bytes, self._numbers, known, self._state, self._series, self._ts, self._values))

    def _read_exactly(self) -> None:
        """One list: all of its values, or none."""
        start = int(self._state[POSITION])
        end = int(value_end(self._bytes, start))
        item = self._body[start:end]
        try:
            self._take(_ONE.decode(item))
        except (_Refused, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._reject(int(self._state[LINE]), str(error)[:200], example(item))
        self._state[POSITION] = next_item(self._bytes, end)
        self._state[LINE] += 1

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise too_much("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._rejected > MESSAGE_LINES_MAX:
            raise too_much("lists in one body that cannot be taken", MESSAGE_LINES_MAX)

    def _take(self, one: ValueList) -> None:
        if len(one.values) != len(one.dsnames):
            raise _Refused(UNEQUAL)
        time_ms = round(1000 * max(-_MAX_S, min(one.time, _MAX_S)))
        if not 1 <= time_ms <= self._rules.latest_ms:
            early = time_ms < 1
            raise _Refused(times.TIME_EARLY if early else times.late(time_ms, self._rules.now_ms, "s"))
        numbers = self._numbers_of(one)
        kept = [(number, value) for number, value in zip(numbers, one.values, strict=True) if value is not None]
        self._write([number for number, _ in kept], time_ms, [value for _, value in kept])

    def _numbers_of(self, one: ValueList) -> list[int]:
        """The series' numbers in the cache, entered as the list writes them; all names are looked at first."""
        metrics, tags = _metrics(one), _tags(one)
        start, end = int(self._state[HEAD_START]), int(self._state[HEAD_END])
        head = self._body[start:end] if start else _form(one)
        found = []
        for dsname, metric in zip(one.dsnames, metrics, strict=True):
            name = msgspec.json.encode(dsname)
            number = self._seen.get((head, dsname))
            if number is None:
                number, self._budget = self._generation.enter(head, name, metric=metric, tags=tags, budget=self._budget)
                self._seen[head, dsname] = number
            found.append(number)
        return found


def _form(one: ValueList) -> bytes:
    """What stands for the head of a list that has none: no list's text begins so."""
    names = (one.host, one.plugin, one.plugin_instance, one.type, one.type_instance)
    return b"\0" + msgspec.json.encode(names)


def _tags(one: ValueList) -> Tags:
    labels = {"host": one.host, "instance": one.plugin_instance, "type": one.type_instance}
    tags = [(name.encode(), value.encode()) for name, value in labels.items() if value]
    if fault := naming.tags_fault(tags):
        raise _Refused(fault)
    return tags


def _metrics(one: ValueList) -> list[bytes]:
    """The metric of each value."""
    base = one.plugin if one.plugin == one.type else f"{one.plugin}_{one.type}"
    metrics = [(base if name == "value" else f"{base}_{name}").encode() for name in one.dsnames]
    if fault := next((f for f in map(naming.metric_fault, metrics) if f), None):
        raise _Refused(fault)
    return metrics
