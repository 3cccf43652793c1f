"""The series cache finds what was added, before and after it has grown."""

import numpy as np

from ingest.protocols.common.series_cache import CacheGeneration
from ingest.protocols.common.series_kernels import find_head, find_item, series_of
from spm.arrays import U8
from spm.wire import canonical, series_id

BUDGET = 1 << 30


def as_bytes(text: bytes) -> U8:
    return np.frombuffer(text, np.uint8)


def resolved(cache: CacheGeneration, host: int, names: list[bytes]) -> list[int]:
    labels = [(b"host", b"%d" % host)]
    return cache.resolve_fields(b"cpu,host=%d" % host, measurement=b"cpu", labels=labels, names=names, budget=BUDGET)[0]


def test_every_series_is_found_again_after_the_tables_have_grown() -> None:
    cache, names = CacheGeneration(capacity=4), [b"user", b"idle", b"value"]
    numbers = [resolved(cache, host, names) for host in range(2_000)]
    known = cache.view()
    for host, series in enumerate(numbers):
        head = find_head(known, as_bytes(b"cpu,host=%d" % host), 0, len(b"cpu,host=%d" % host))
        items = [find_item(known, head, as_bytes(name), 0, len(name)) for name in names]
        assert [series_of(known, item) for item in items] == series
        assert cache.canonical(series[2]) == canonical("cpu", {"host": str(host)})
    assert resolved(cache, 7, [*names, b"new"])[:3] == numbers[7]


def test_field_that_stands_twice_in_a_line_is_one_series() -> None:
    first, second, again = resolved(CacheGeneration(), 1, [b"user", b"idle", b"user"])
    assert first == again != second


def test_table_of_series_has_their_ids_and_forms() -> None:
    cache = CacheGeneration(capacity=4)
    numbers = [number for host in range(50) for number in resolved(cache, host, [b"user", b"idle"])]
    series = np.array(numbers[::-1] + numbers, np.int32)
    table = cache.message_table(series)
    forms = [table.canonical(i) for i in range(len(table))]
    assert forms == [cache.canonical(number) for number in numbers[::-1]]
    assert table.ids.tolist() == list(map(series_id, forms))
    assert series.tolist() == [*range(100), *reversed(range(100))]
