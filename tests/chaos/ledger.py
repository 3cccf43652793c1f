"""The ledger checker, one for all tests that kill: what was sent against what is read back.

    acked ⊆ stored ⊆ acked ∪ unknown, each sample once, each message under no more stamps than it was accepted,
    and every hour equal to a recount

``Sent`` is one message in its sender's log; ``violations`` and ``wrong_hours`` are pure and answer sentences, none when
all is well. Samples are (series in words, time, bits of the value), values being whole numbers that occur once.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from spm.limits import HOUR_MS
from spm.query.select import Matcher
from spm.query.storage import AppStorage
from tests.stack.stored import Copies, Sample, series_name

ACKED, REFUSED, UNKNOWN = "acked", "refused", "unknown"
SHOWN = 3  # examples of each kind of violation


@dataclass(slots=True)
class Sent:
    """One message, and what its sender knows of it. ``stamps_max``: how often it may have been accepted."""

    message_id: bytes
    samples: tuple[Sample, ...]
    outcome: str = UNKNOWN
    stamps_max: int = 1


def violations(sent: Sequence[Sent], stored: Counter[Sample], copies: Copies) -> list[str]:
    """Every kind of violation with its number and some examples."""
    acked = {sample for one in sent if one.outcome == ACKED for sample in one.samples}
    may = acked | {sample for one in sent if one.outcome == UNKNOWN for sample in one.samples}
    by_id = {one.message_id: one for one in sent}
    found: dict[str, Collection[object]] = {
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
    return [f"{kind}: {len(which)}, as {sorted(map(str, which))[:SHOWN]}" for kind, which in found.items() if which]


def wrong_hours(storage: AppStorage, stored: Iterable[Sample]) -> list[str]:
    """Where count, sum, min and max of an hour differ from a recount of what is stored. All sums are exact."""
    wanted: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name, ts, bits in stored:
        wanted[name, (ts - 1) // HOUR_MS].append(struct.unpack("<d", bits)[0])
    slots = [slot for _, slot in wanted]
    batch = storage.select_hours([Matcher("__name__", "=~", ".+")], min(slots), max(slots))
    wrong = []
    for row, labels in enumerate(batch.labels):
        for column, slot in enumerate(range(min(slots), max(slots) + 1)):
            values = wanted.pop((series_name(labels), slot), [])
            got = [float(getattr(batch, name)[row, column]) for name in ("count", "sum", "min", "max")]
            if values and got != [len(values), sum(values), min(values), max(values)]:
                wrong.append(f"{labels} hour {slot}: {got}")
            if not values and got[0]:
                wrong.append(f"{labels} hour {slot}: {got} of nothing")
    return [*wrong, *(f"{name} hour {slot}: missing" for name, slot in wanted)]
