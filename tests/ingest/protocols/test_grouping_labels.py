"""Labels of an address on every series of a body: how they are merged, and their limits."""

import numpy as np
import pytest

from ingest.protocols import grouping_labels
from ingest.protocols.grouping_labels import add_labels
from spm.errors import BadMessage, LimitExceeded
from spm.limits import LABELS_MAX
from spm.wire import Parsed, SeriesTable, canonical, parse_canonical


def body(*label_sets: dict[str, str]) -> Parsed:
    table = SeriesTable.from_canonical([canonical("m", one) for one in label_sets])
    count = len(label_sets)
    return Parsed(table, np.arange(count, dtype=np.int32), np.ones(count, np.int64), np.arange(count, dtype=np.float64))


def test_labels_of_the_address_win_and_series_that_become_one_keep_their_samples_in_order() -> None:
    merged = add_labels(body({"job": "a"}, {"job": "b"}, {"x": "y"}), {"job": "j"})
    names = [parse_canonical(merged.series.canonical(int(number))) for number in merged.series_index]
    assert names == [("m", {"job": "j"}), ("m", {"job": "j"}), ("m", {"job": "j", "x": "y"})]
    assert merged.values.tolist() == [0, 1, 2]


def test_a_series_with_too_many_labels_in_all_is_rejected() -> None:
    with pytest.raises(BadMessage, match="with those of the address"):
        add_labels(body({f"t{n}": "x" for n in range(LABELS_MAX)}), {"job": "j"})


def test_a_long_address_times_many_series_ends_at_the_first_byte_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[bytes] = []

    def counted(metric: str, labels: dict[str, str]) -> bytes:
        merged.append(canonical(metric, labels))
        return merged[-1]

    monkeypatch.setattr(grouping_labels, "canonical", counted)
    monkeypatch.setattr(grouping_labels, "MESSAGE_SERIES_BYTES_MAX", 5_000)
    with pytest.raises(LimitExceeded):
        add_labels(body(*({"n": str(n)} for n in range(1_000))), {"job": "j" * 1_000})
    assert len(merged) == 5
