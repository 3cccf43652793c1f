"""Of the tail, a read takes the blocks of the days that it wants: a sender of long ago costs others a list of names."""

from collections.abc import Sequence

import pytest

from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.store import keys
from spm.store.backends.base import Reader
from tests.model.world import ALL, START, World

DAYS, BODIES = 30, 3
NOW_MS, TODAY = START + HOUR_MS, START // HOUR_MS


class Site:
    """A store with bodies of many days of long ago, and a process that notes the hours whose blocks it reads."""

    def __init__(self) -> None:
        self.world = World()
        for body in range(BODIES):
            self.world.send(*((2, -day * DAY_HOURS * HOUR_MS + body + 1, 7.0) for day in range(1, DAYS)))
            self.world.send((0, body + 1, 1.0))
        self.storage: AppStorage = self.world.fresh()
        self.hours_read: list[int] = []
        rows, tail = self.storage._state.rows, self.storage._state.tail

        def log(reader: Reader, row_keys: Sequence[bytes]) -> list[object]:
            self.hours_read += [keys.LogKey.parse(key).hour for key in row_keys]
            return rows.log(reader, row_keys)  # type: ignore[return-value]

        tail._read_blocks = log  # type: ignore[assignment]


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_read_of_the_last_hour_reads_no_block_of_other_days(site: Site) -> None:
    site.storage.knowledge()
    assert site.hours_read == []
    assert len(site.storage.select(ALL, START, NOW_MS).ts) == BODIES
    assert len(site.hours_read) == BODIES
    assert min(site.hours_read) >= TODAY
    site.storage.select(ALL, START, NOW_MS)
    assert len(site.hours_read) == BODIES


def test_a_read_of_all_days_reads_each_block_once(site: Site) -> None:
    first_ms = START - DAYS * DAY_HOURS * HOUR_MS
    for _ in range(2):
        assert len(site.storage.select(ALL, first_ms, NOW_MS).ts) == BODIES * DAYS
    assert len(site.hours_read) == BODIES * DAYS


def test_series_are_named_of_which_no_block_was_read(site: Site) -> None:
    assert site.storage.label_values("n", [], START, NOW_MS) == ["0", "2"]
    assert len(site.hours_read) == BODIES
    site.world.send((4, -3 * DAY_HOURS * HOUR_MS, 1.0))
    site.world.clock.advance(2_000)
    assert site.storage.label_values("n", [], START, NOW_MS) == ["0", "2", "4"]
    assert len(site.storage.portions(ALL, 10)[0]) == 3


def test_what_a_run_has_compacted_before_it_was_read_is_not_read_from_its_blocks(site: Site) -> None:
    site.world.send((2, 5 - DAY_HOURS * HOUR_MS, 7.0), (2, 5, 7.0))
    site.storage.knowledge()
    for key, cells in list(site.world.store.scan("pending", b"", b"\xff" * 64)):
        site.world.store.delete("pending", [(key, [column for column in cells if keys.column_hour(column) < TODAY])])
    site.world.clock.advance(2_000)
    first_ms = START - DAYS * DAY_HOURS * HOUR_MS
    assert len(site.storage.select(ALL, first_ms, NOW_MS).ts) == BODIES + 1
    assert len(site.hours_read) == BODIES + 1


def test_a_deadline_ends_the_reading_of_blocks_and_the_next_read_goes_on(site: Site) -> None:
    first_ms, looks = START - DAYS * DAY_HOURS * HOUR_MS, list[int]()

    def check() -> None:
        looks.append(len(site.hours_read))
        if len(looks) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        site.storage.select(ALL, first_ms, NOW_MS, check_deadline=check)
    assert 0 < len(site.hours_read) < BODIES * DAYS
    assert len(site.storage.select(ALL, first_ms, NOW_MS).ts) == BODIES * DAYS
    assert len(site.hours_read) == BODIES * DAYS
