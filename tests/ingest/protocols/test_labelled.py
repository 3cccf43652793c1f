"""Labels of an address on every series of a body: how they are joined, and where it ends."""

import numpy as np
import pytest

from ingest.protocols import labelled
from ingest.protocols.labelled import with_labels
from spm.errors import BadMessage, LimitExceeded
from spm.limits import LABELS_MAX
from spm.wire import Parsed, SeriesTable, canonical, parse_canonical


def body(*tags: dict[str, str]) -> Parsed:
    table = SeriesTable.from_canonical([canonical("m", one) for one in tags])
    count = len(tags)
    return Parsed(table, np.arange(count, dtype=np.int32), np.ones(count, np.int64), np.arange(count, dtype=np.float64))


def test_labels_of_the_address_win_and_series_that_become_one_keep_their_samples_in_order() -> None:
    made = with_labels(body({"job": "a"}, {"job": "b"}, {"x": "y"}), {"job": "j"})
    names = [parse_canonical(made.series.canonical(int(number))) for number in made.series_index]
    assert names == [("m", {"job": "j"}), ("m", {"job": "j"}), ("m", {"job": "j", "x": "y"})]
    assert made.values.tolist() == [0, 1, 2]


def test_a_series_with_too_many_labels_in_all_is_refused() -> None:
    with pytest.raises(BadMessage, match="with those of the address"):
        with_labels(body({f"t{n}": "x" for n in range(LABELS_MAX)}), {"job": "j"})


def test_a_long_address_times_many_series_ends_at_the_first_byte_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []

    def counted(metric: str, labels: dict[str, str]) -> bytes:
        made.append(canonical(metric, labels))
        return made[-1]

    monkeypatch.setattr(labelled, "canonical", counted)
    monkeypatch.setattr(labelled, "MESSAGE_SERIES_BYTES_MAX", 5_000)
    with pytest.raises(LimitExceeded):
        with_labels(body(*({"n": str(n)} for n in range(1_000))), {"job": "j" * 1_000})
    assert len(made) == 5
