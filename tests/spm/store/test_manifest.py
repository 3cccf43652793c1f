"""Claims about spm/store/manifest.py: the one cell of an (app, day), and fingerprints."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm import limits
from spm.store import manifest
from spm.store.encoding import blocks
from spm.store.manifest import (
    DayInputs,
    DayPack,
    Entry,
    Generation,
    HourInputs,
    HourPack,
    Manifest,
    Month,
    PreviousState,
    Replay,
    State,
    day_fingerprint,
    fingerprint,
)

LONG = st.integers(0, 2**64 - 1)
GENERATION = st.builds(Generation, LONG, st.integers(0, 16), st.integers(0, 31), st.integers(1, 9))
REPLAY = st.builds(Replay, st.integers(0, 2**48), LONG)
STATE = st.builds(State, st.lists(GENERATION, max_size=4).map(tuple), st.lists(REPLAY, max_size=4).map(tuple))
FORMER = st.builds(PreviousState, st.integers(0, 2**40), STATE, st.just(((1, 2), (3, 4))))
ENTRY = st.builds(Entry, STATE, st.lists(FORMER, max_size=2).map(tuple), LONG, LONG, st.just(("a", "ü")))
HOURS = st.builds(
    HourPack, GENERATION, st.dictionaries(st.integers(0, 2**32), st.builds(HourInputs, st.binary(max_size=8)))
)
UNIT = st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))
MANIFEST = st.builds(
    Manifest,
    LONG,
    LONG,
    st.dictionaries(UNIT, ENTRY, max_size=3),
    st.dictionaries(st.integers(0, 255), HOURS, max_size=2),
    st.dictionaries(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]), max_size=3),
)
MONTH = st.builds(
    Month,
    LONG,
    st.dictionaries(st.integers(0, 255), st.builds(DayPack, GENERATION, st.just({3: DayInputs(b"x" * 8, b"", 7)}))),
)


@given(MANIFEST)
def test_a_manifest_comes_back(value: Manifest) -> None:
    assert manifest.decode(manifest.encode(value)) == value


SOURCES = st.lists(st.text(max_size=3), max_size=4, unique=True).map(lambda names: tuple(sorted(names)))


@given(st.dictionaries(UNIT, st.builds(Entry, sources=SOURCES), max_size=12))
def test_entries_with_any_sources_come_back_from_shared_sets(entries: dict[tuple[int, int], Entry]) -> None:
    value = Manifest(1, 2, entries)
    assert manifest.decode(manifest._encode_numbering(value)) == value


DAY = range(480_000, 480_024)


def of_hosts(names: tuple[str, ...], shards: int) -> Manifest:
    """A day whose entries all have these sources."""
    places = [(shard, hour) for shard in range(shards) for hour in DAY]
    return Manifest(1, 0, {p: Entry(State((Generation(1),)), (), 5, 6, names) for p in places})


def test_a_day_of_ten_thousand_hosts_in_sixteen_shards_is_read_back() -> None:
    """As tuples of names in each entry these would unpack to 170 MB, which no reader accepts."""
    names = tuple(sorted(f"ip-10-{n // 256}-{n % 256}.eu-central-1.compute.internal" for n in range(10_000)))
    raw = manifest.encode(of_hosts(names, 16))
    assert len(raw) < limits.CELL_BYTES_MAX // 20
    value = manifest.decode(raw)
    assert value == of_hosts(names, 16)
    assert len({id(entry.sources) for entry in value.entries.values()}) == 1


def test_a_day_with_few_sources_is_written_as_older_programs_read_it() -> None:
    names = tuple(sorted(f"h{n}" for n in range(manifest.ENTRIES_NAMES_MAX // 24)))
    assert blocks.read(blocks.MANIFEST, manifest.encode(of_hosts(names, 1)))[0] == 1
    assert blocks.read(blocks.MANIFEST, manifest.encode(of_hosts((*names, "zz"), 1)))[0] == 2


def test_sources_beyond_the_bound_are_not_named_and_count_as_any() -> None:
    """Each hour has other names of 100 bytes: the older hours keep theirs, and a retraction of any may touch others."""
    each = manifest.SOURCES_BYTES_MAX // 100 // 20
    entries = {}
    for hour in DAY:
        names = tuple(sorted(f"{hour}-{n}".ljust(100, "x") for n in range(each)))
        entries[0, hour] = Entry(State((Generation(1),)), (), 5, 6, names)
    value = manifest.decode(manifest.encode(Manifest(1, 0, entries)))
    named = [bool(value.entry(0, hour).sources) for hour in DAY]
    assert named == sorted(named, reverse=True)
    assert 15 < sum(named) < 20
    assert manifest.joined_sources([(6, value.entry(0, DAY[-1]).sources), (7, ("new",))]) == ()
    assert manifest.joined_sources([(0, ()), (7, ("new",))]) == ("new",)


@given(MONTH)
def test_a_month_comes_back(value: Month) -> None:
    assert manifest.decode_month(manifest.encode_month(value)) == value


def test_an_absent_cell_is_an_empty_manifest() -> None:
    assert manifest.decode(None) == Manifest()
    assert manifest.decode_month(None) == Month()
    assert Manifest().entry(3, 5) == Entry()


@given(MANIFEST)
def test_two_nonces_give_two_values(value: Manifest) -> None:
    other = msgspec.structs.replace(value, nonce=(value.nonce + 1) % 2**64)
    assert manifest.encode(other) != manifest.encode(value)


@given(STATE)
def test_the_order_of_the_replay_list_does_not_change_a_fingerprint(state: State) -> None:
    assert fingerprint(State(state.generations, tuple(reversed(state.replay)))) == fingerprint(state)


@given(st.lists(STATE, max_size=6))
def test_different_states_have_different_fingerprints(states: list[State]) -> None:
    distinct = {(tuple(g.number for g in s.generations), tuple(sorted(r.batch for r in s.replay))) for s in states}
    marks = {
        (tuple(g.number for g in s.generations), tuple(r.batch for r in sorted(s.replay))): fingerprint(s)
        for s in states
    }
    assert len(set(marks.values())) >= len(distinct)


def state(*numbers: int, replay: tuple[int, ...] = ()) -> State:
    return State(tuple(map(Generation, numbers)), tuple(Replay(1, b) for b in replay))


NEAR = {
    "one generation": state(5),
    "two": state(5, 6),
    "two, the other way round": state(6, 5),
    "one and a batch": state(5, replay=(6,)),
    "a batch only": state(replay=(5,)),
    "two batches": state(replay=(5, 6)),
    "nothing": state(),
}


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(NEAR, 2)))
def test_fingerprints_tell_apart(a: str, b: str) -> None:
    assert fingerprint(NEAR[a]) != fingerprint(NEAR[b])


def test_the_fingerprint_of_nothing_is_empty_and_others_have_eight_bytes() -> None:
    assert [len(fingerprint(s)) for s in NEAR.values()] == [8] * 6 + [0]


def test_a_fingerprint_is_frozen() -> None:
    assert fingerprint(state(5, 6, replay=(7,))).hex() == "5ca866ccf333f2bb"


@given(st.dictionaries(st.integers(0, 99), st.sampled_from([b"", b"a" * 8, b"b" * 8]), max_size=5))
def test_a_days_fingerprint_depends_on_hours_with_data_only(marks: dict[int, bytes]) -> None:
    present = {s: m for s, m in marks.items() if m}
    assert day_fingerprint(reversed(list(marks.items()))) == day_fingerprint(present.items())
    assert (day_fingerprint(marks.items()) == b"") == (not present)
    for hour in present:
        assert day_fingerprint([(s, m) for s, m in present.items() if s != hour]) != day_fingerprint(present.items())


def test_hours_of_a_shard_are_those_with_something_in_force() -> None:
    entries = {(1, 9): Entry(state(5)), (1, 7): Entry(state(replay=(6,))), (1, 8): Entry(), (2, 7): Entry(state(5))}
    assert manifest.hours_of(Manifest(entries=entries), 1) == [
        (7, fingerprint(state(replay=(6,)))),
        (9, fingerprint(state(5))),
    ]


@given(st.integers(0, 2**64 - 1), st.integers(0, 16))
def test_the_page_of_a_series_is_the_top_bits_of_its_id(series: int, page_bits: int) -> None:
    assert Generation(1, page_bits).page_of(series) == int(f"{series:064b}"[:page_bits] or "0", 2)
