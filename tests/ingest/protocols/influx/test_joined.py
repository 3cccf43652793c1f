"""Bodies of many senders that are read together have the results that each has alone, whatever stands beside it."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.protocols.common import line_reader, series_cache
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.influx import joined, kernels, reader
from ingest.protocols.influx.joined import BodyToParse, parse_many
from spm import limits
from spm.arrays import I64, U8
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed
from tests.ingest.protocols.influx.test_reader_property import bodies

NOW_MS = 1_700_000_000_000
COMMON = SeriesCache()  # shared by all examples, so that the kernel reads the known series of later ones
PLAIN = b"cpu,host=a user=1i,idle=0.5 1700000000000000000\ncpu,host=b user=2i,idle=0.25\n"
MUTATED = (
    PLAIN,
    b'cpu,host=a,dc=b\\ c user=1i,idle=0.5,ok=t,note="a \\"b\\"" 1700000000000000000\ncpu user=2u\n',
    b"weather,location=us-midwest temperature=82,humidity=7.1e1 1465839830100400200\n# note\n",
)
SIGNS = (b" ", b",", b"=", b'"', b"\\", b"\n", b"i", b"e9", b"-")

one_body = st.builds(
    BodyToParse,
    bodies,
    st.integers(NOW_MS, NOW_MS + 2),
    st.sampled_from(["ns", "us", "ms", "s", "m", "", "no precision"]),
    st.sampled_from([False, False, False, True]),
)


def described(result: Parsed | Exception) -> object:
    """Everything that a result says, in a form that can be compared."""
    if isinstance(result, Exception):
        return type(result), str(result)
    forms = [result.series.canonical(i) for i in range(len(result.series))]
    columns = (result.series.ids, result.series.metrics, result.series_index, result.ts, result.values.view(np.int64))
    assert result.places is not None
    places = result.places(range(len(result.ts)))
    notes = (result.timeless, result.rejections, result.rejected, result.metadata)
    return forms, [(column.dtype, column.tolist()) for column in columns], places, notes


def alone(body: BodyToParse, cache: SeriesCache) -> Parsed | Exception:
    try:
        return reader.parse(
            body.raw, now_ms=body.now_ms, precision=body.precision, over_quota=body.over_quota, cache=cache
        )
    except (BadMessage, LimitExceeded) as error:
        return error


def assert_as_alone(some: Sequence[BodyToParse], cache: SeriesCache) -> None:
    together = parse_many(some, cache=cache)
    assert [described(result) for result in together] == [described(alone(body, cache)) for body in some]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(one_body, max_size=6))
def test_each_body_has_the_result_that_it_has_alone(some: list[BodyToParse]) -> None:
    assert_as_alone(some, COMMON)
    assert_as_alone(some, COMMON)  # now every series is known


def mutated(draw: random.Random) -> bytes:
    body = bytearray(draw.choice(MUTATED))
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(body) + 1)
        body[at : at + draw.randrange(4)] = draw.choice((*SIGNS, draw.randbytes(2), bytes(body[at : at + 9]) * 2))
    return bytes(body)


def test_mutated_bodies_have_the_results_that_they_have_alone() -> None:
    draw = random.Random(7)
    for _ in range(300):
        some = [BodyToParse(mutated(draw), NOW_MS, draw.choice(["ns", "ms"])) for _ in range(draw.randrange(2, 12))]
        assert_as_alone(some, COMMON)


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize(
    "poison",
    [
        pytest.param(BodyToParse(b"cpu,host=a user=1i", NOW_MS, "fortnight"), id="unknown precision"),
        pytest.param(BodyToParse(b"cpu,host=new user=1i", NOW_MS), id="a new series"),
        pytest.param(BodyToParse(b"cpu,host=a user=\xff 1\ncpu,host=a user=1i", NOW_MS), id="bytes that are no text"),
        pytest.param(BodyToParse(b"", NOW_MS), id="empty"),
        pytest.param(BodyToParse(b"\n" * 1_000, NOW_MS), id="only line ends"),
        pytest.param(BodyToParse(b"m " + b"a=1," * 2_000 + b"a=1", NOW_MS), id="more samples than the columns hold"),
        pytest.param(BodyToParse(PLAIN * 1_000, NOW_MS), id="large"),
        pytest.param(BodyToParse(PLAIN, NOW_MS, over_quota=True), id="of an app over its quota"),
    ],
)
def test_an_odd_body_touches_no_other_wherever_it_stands(poison: BodyToParse, place: int) -> None:
    some = [BodyToParse(PLAIN.replace(b"1i", b"%di" % n), NOW_MS + n) for n in range(6)]
    cache = SeriesCache()
    parse_many(some, cache=cache)
    assert_as_alone([*some[:place], poison, *some[place:]], cache)


def test_new_series_of_plain_lines_are_read_without_the_exact_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [
        BodyToParse(PLAIN.replace(b"host=", b"host=%d-" % number) * (1 + number % 2), NOW_MS) for number in range(9)
    ]
    cache = SeriesCache()
    monkeypatch.delattr(reader.InfluxReader, "_read_exactly")
    results = parse_many(some, cache=cache)
    assert [len(result.series) for result in results if isinstance(result, Parsed)] == [4] * len(some)
    assert [len(result.ts) for result in results if isinstance(result, Parsed)] == [4, 8, 4, 8, 4, 8, 4, 8, 4]


def test_lines_are_searched_for_new_series_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    find_new: Callable[..., tuple[int, int, int]] = kernels.find_new

    def count(text: U8, spans: I64, *arguments: object) -> tuple[int, int, int]:
        counts = find_new(text, spans, *arguments)
        searched.append(counts[2] - int(spans[0, 0]))
        return counts

    monkeypatch.setattr("ingest.protocols.influx.new_series.find_new", count)
    bad = b"cpu,host= user=1i\n"  # plain to the kernel, yet a label without a value
    body = b"".join(bad + b"cpu,host=%d user=1i\n" % number for number in range(300))
    assert reader.parse(body, now_ms=NOW_MS, cache=SeriesCache()).rejected == 300
    assert sum(searched) <= len(body)


def test_names_of_an_app_over_its_quota_stay_out_of_the_common_cache() -> None:
    before = reader.COMMON_CACHE.generation().form_bytes
    some = [BodyToParse(b"m,over=%d v=1" % number, NOW_MS, over_quota=True) for number in range(3)]
    assert [len(result.ts) for result in parse_many(some) if isinstance(result, Parsed)] == [1, 1, 1]
    assert reader.COMMON_CACHE.generation().form_bytes == before


def test_error_of_our_own_in_one_body_is_its_result_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    some = [BodyToParse(PLAIN, NOW_MS), BodyToParse(b'cpu,host=a note="x"', NOW_MS), BodyToParse(PLAIN, NOW_MS)]
    parse_many(some, cache=COMMON)
    with monkeypatch.context() as broken:
        broken.setattr(reader, "read_line", fail)
        first, odd, last = parse_many(some, cache=COMMON)
    assert (type(odd), str(odd)) == (RuntimeError, "ours")
    assert described(first) == described(last) == described(alone(some[0], COMMON))


def test_body_of_too_many_lines_is_an_error_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MESSAGE_LINES_MAX", 3)
    small, large = BodyToParse(b"m a=1,b=2\n", NOW_MS), BodyToParse(b"m a=1,b=2\n" * 4, NOW_MS)
    for _ in range(2):
        results = parse_many([small, large, small], cache=COMMON)
        assert [type(result) for result in results] == [Parsed, LimitExceeded, Parsed]


def test_body_with_too_much_series_text_is_an_error_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = BodyToParse(b"m a=1", NOW_MS), BodyToParse(b"measurement f=1,g=2", NOW_MS)
    parse_many([small, large], cache=COMMON)
    for module in (joined, line_reader, series_cache):
        monkeypatch.setattr(module, "MESSAGE_SERIES_BYTES_MAX", 20)
    results = parse_many([small, large, small], cache=COMMON)
    assert [type(result) for result in results] == [Parsed, LimitExceeded, Parsed]


def test_bodies_of_more_bytes_than_are_read_together_are_read_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read_together = joined._JoinedBodies.__init__

    def count(self: joined._JoinedBodies, bodies: list[BodyToParse], *arguments: object) -> None:
        sizes.append(sum(len(body.raw) for body in bodies))
        read_together(self, bodies, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(joined._JoinedBodies, "__init__", count)
    monkeypatch.setattr(joined, "JOINED_BYTES_MAX", 3 * len(PLAIN))
    monkeypatch.setattr(joined, "JOINED_BODY_BYTES_MAX", len(PLAIN))
    some = [BodyToParse(PLAIN, NOW_MS)] * 7 + [BodyToParse(PLAIN + b"\n", NOW_MS)]
    assert_as_alone(some, COMMON)
    assert sizes == [3 * len(PLAIN)] * 2  # the seventh is alone in its group, the eighth is too large


def test_body_that_is_read_with_others_cannot_hold_too_many_samples() -> None:
    assert min(limits.MESSAGE_SAMPLES_MAX, limits.JOINED_BYTES_MAX) >= limits.JOINED_BODY_BYTES_MAX
