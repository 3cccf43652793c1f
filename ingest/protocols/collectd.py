"""collectd's JSON (its plug-ins ``amqp`` and ``write_http``): lists of values with their names.

    [{"values": [1, 2], "dsnames": ["rx", "tx"], "time": 1700000000.123, "host": "h",
      "plugin": "interface", "plugin_instance": "eth0", "type": "if_octets", "type_instance": ""}, …]

The metric is plugin_type (the plugin alone where both are the same), with _dsname unless that is "value"; the labels
are host, instance (of the plugin) and type (its instance), where they are not empty. Times are seconds. A null value is
none. One bad list refuses itself; its "line" is its place. Enter by ``parse``.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from ingest.protocols import naming, times
from ingest.protocols.line_exact import example
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS, JSON_COMMAS_MAX, MESSAGE_SAMPLES_MAX, MESSAGE_SERIES_BYTES_MAX, REJECTIONS_MAX
from spm.wire import Parsed, Rejection, SeriesTable, canonical

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


_OUTER = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(ValueList)


class _Refused(Exception):
    """Why one list cannot be taken."""


def parse(body: bytes, *, now_ms: int) -> Parsed:
    """All samples of a body. ``BadMessage``: not this form at all; ``LimitExceeded``: a body too rich."""
    if body.count(b",") > JSON_COMMAS_MAX:
        raise LimitExceeded("the message has too many commas", wanted=f"at most {JSON_COMMAS_MAX}")
    try:
        items = _OUTER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not collectd's JSON", got=str(error)[:200], wanted=_WANTED) from error
    reading = _Reading(now_ms)
    for place, item in enumerate(items, 1):
        reading.take(place, item)
    return reading.parsed()


class _Reading:
    """One body on its way."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms, self._latest_ms = now_ms, now_ms + FUTURE_MS
        self._numbers: dict[bytes, int] = {}
        self._form_bytes = 0
        self._rows: list[tuple[int, int, float]] = []
        self._rejections: list[Rejection] = []
        self._rejected = 0

    def take(self, place: int, item: msgspec.Raw) -> None:
        """One list: all of its values, or none."""
        try:
            self._rows += self._rows_of(item)
        except (_Refused, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._rejected += 1
            if len(self._rejections) < REJECTIONS_MAX:
                self._rejections.append(Rejection(place, str(error)[:200], example(bytes(item))))
        if len(self._rows) > MESSAGE_SAMPLES_MAX:
            raise LimitExceeded("the message has too many samples", wanted=f"at most {MESSAGE_SAMPLES_MAX}")

    def parsed(self) -> Parsed:
        """What the body gave."""
        series, ts, values = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return Parsed(
            series=SeriesTable.from_canonical(list(self._numbers)), series_index=np.array(series, np.int32),
            ts=np.array(ts, np.int64), values=np.array(values, np.float64),
            rejections=tuple(self._rejections), rejected=self._rejected,
        )  # fmt: skip

    def _rows_of(self, item: msgspec.Raw) -> list[tuple[int, int, float]]:
        one = _ONE.decode(item)
        if len(one.values) != len(one.dsnames):
            raise _Refused(UNEQUAL)
        time_ms = round(1000 * max(-_MAX_S, min(one.time, _MAX_S)))
        if not 1 <= time_ms <= self._latest_ms:
            raise _Refused(times.TIME_EARLY if time_ms < 1 else times.late(time_ms, self._now_ms, "s"))
        forms = _forms(one)
        return [
            (self._number_of(form), time_ms, value)
            for form, value in zip(forms, one.values, strict=True)
            if value is not None
        ]

    def _number_of(self, form: bytes) -> int:
        if form not in self._numbers:
            self._form_bytes += len(form)
            if self._form_bytes > MESSAGE_SERIES_BYTES_MAX:
                raise LimitExceeded(
                    "the message has too many bytes of series names and tags",
                    wanted=f"at most {MESSAGE_SERIES_BYTES_MAX}",
                )
        return self._numbers.setdefault(form, len(self._numbers))


def _forms(one: ValueList) -> Sequence[bytes]:
    """The canonical form of each value's series."""
    labels = {"host": one.host, "instance": one.plugin_instance, "type": one.type_instance}
    kept = {name: value for name, value in labels.items() if value}
    fault = naming.tags_fault([(name.encode(), value.encode()) for name, value in kept.items()])
    base = one.plugin if one.plugin == one.type else f"{one.plugin}_{one.type}"
    names = [base if name == "value" else f"{base}_{name}" for name in one.dsnames]
    faults = [fault, *(naming.metric_fault(name.encode()) for name in names)]
    if found := next((f for f in faults if f), None):
        raise _Refused(found)
    return [canonical(name, kept) for name in names]
