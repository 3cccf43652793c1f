"""The ledger checker, one for all tests that kill: what was sent against what is read back.

    acked ⊆ stored ⊆ acked ∪ unknown, each sample once, each message under no more stamps than it was accepted,
    and every hour equal to a recount

``Sent`` is one message in its sender's log; ``violations`` and ``wrong_hours`` are pure and answer sentences, none when
all is well. Samples are (series as text, time, bits of the value), values being whole numbers that occur once.
"""

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from tests.support.stored import Copies, Sample, series_name

ACKED, REFUSED, UNKNOWN = "acked", "refused", "unknown"
SHOWN = 3  # examples of each kind of violation


@dataclass(slots=True)
class Sent:
    """One message, and what its sender knows of it. ``stamps_max``: how often it may have been accepted."""

    message_id: bytes
    samples: Sequence[Sample]
    outcome: str = UNKNOWN
    stamps_max: int = 1


def violations(sent: Sequence[Sent], stored: Counter[Sample], copies: Copies) -> list[str]:
    """Every kind of violation with its number and some examples."""
    acked = {sample for one in sent if one.outcome == ACKED for sample in one.samples}
    may = acked | {sample for one in sent if one.outcome == UNKNOWN for sample in one.samples}
    by_id = {one.message_id: one for one in sent}
    complaints: dict[str, Collection[object]] = {
        "lost: acked and not stored": acked - stored.keys(),
        "invented: stored, and neither acked nor unknown": stored.keys() - may,
        "doubled: read more than once": {sample for sample, times in stored.items() if times > 1},
        "stranger: a message nobody sent": copies.keys() - by_id.keys(),
        "restamped: under more stamps than acceptances": {
            name.hex() for name, stamps in copies.items() if name in by_id and len(stamps) > by_id[name].stamps_max
        },
        "miscounted: a commit record with another number of samples": {
            name.hex()
            for name, stamps in copies.items()
            if name in by_id and any(count != len(by_id[name].samples) for count in stamps.values())
        },
    }
    return [
        f"{kind}: {len(which)}, as {sorted(map(str, which))[:SHOWN]}" for kind, which in complaints.items() if which
    ]


def violations_in_parts(
    sent: Sequence[Sent], stored: Callable[[int, int], Counter[Sample]], copies: Copies, part: int, recount: "Recount"
) -> list[str]:
    """The same of a log, in the order of its times, ``part`` messages at a time, so that memory stays small.

    All samples of a message have one time. ``stored`` reads what lies between two times (from, exclusive; up to), and
    what it finds is counted in ``recount``.
    """
    sent = sorted(sent, key=_time)
    complaints, ts = [], list(map(_time, sent))
    for some in _parts(sent, ts, part):
        times = [ts for one in (some[0], some[-1]) for _, ts, _ in one.samples]
        read = stored(min(times) - 1, max(times))
        ids = {one.message_id for one in some}
        complaints += violations(some, read, {name: stamps for name, stamps in copies.items() if name in ids})
        recount.add(read)
    strangers = copies.keys() - {one.message_id for one in sent}
    return [*complaints, *([f"stranger: {len(strangers)} messages nobody sent"] if strangers else [])]


def _time(one: Sent) -> int:
    return next(iter(one.samples))[1]


def _parts(sent: Sequence[Sent], ts: Sequence[int], part: int) -> Iterator[Sequence[Sent]]:
    """About ``part`` messages each; those of one time stay together."""
    at = 0
    while at < len(sent):
        end = min(at + part, len(sent))
        while end < len(sent) and ts[end] == ts[end - 1]:
            end += 1
        yield sent[at:end]
        at = end


@dataclass(slots=True)
class Recount:
    """Count, sum, min and max of each series and hour, from bare samples. All sums are exact: whole numbers."""

    hours: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def add(self, stored: Iterable[Sample]) -> "Recount":
        """Count these, too."""
        for name, ts, bits in stored:
            value = struct.unpack("<d", bits)[0]
            aggregate = self.hours.setdefault((name, (ts - 1) // HOUR_MS), [0, 0.0, value, value])
            aggregate[:] = [aggregate[0] + 1, aggregate[1] + value, min(aggregate[2], value), max(aggregate[3], value)]
        return self


def wrong_hours(storage: AppStorage, stored: Iterable[Sample] | Recount) -> list[str]:
    """Where count, sum, min and max of an hour differ from a recount of what is stored."""
    wanted = dict(stored.hours if isinstance(stored, Recount) else Recount().add(stored).hours)
    hours = [hour for _, hour in wanted]
    batch = storage.select_hours([Matcher("__name__", "=~", ".+")], min(hours), max(hours))
    wrong = []
    for row, labels in enumerate(batch.labels):
        for column, hour in enumerate(range(min(hours), max(hours) + 1)):
            right = wanted.pop((series_name(labels), hour), None)
            got = [float(getattr(batch, name)[row, column]) for name in ("count", "sum", "min", "max")]
            if right is not None and got != right:
                wrong.append(f"{labels} hour {hour}: {got}")
            if right is None and got[0]:
                wrong.append(f"{labels} hour {hour}: {got} of nothing")
    return [*wrong, *(f"{name} hour {hour}: missing" for name, hour in wanted)]
