"""Chunks of streamed remote read decode to the samples that were encoded, and frames are complete."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.limits import READ_CHUNK_SAMPLES, READ_FRAME_BYTES
from spm.query.formats import remote_read, xor_chunks
from spm.query.request.batches import SeriesBatch
from tests.spm.query.formats.remote_read_stream import checksum, points_of, read_stream

STEPS = st.one_of(st.integers(1, 20), st.integers(1, 20_000), st.integers(1, 2**21), st.integers(1, 2**61))
BITS = st.one_of(
    st.integers(0, 2**64 - 1), st.floats().map(lambda value: int(np.float64(value).view(np.uint64))), st.just(0)
)
SAMPLES = st.lists(st.tuples(STEPS, BITS), min_size=1, max_size=2 * READ_CHUNK_SAMPLES + 5)


def batch(*series: list[tuple[int, int]], start_ms: int = 0) -> SeriesBatch:
    """Return a batch of series of (delta of times, bits of a value)."""
    ends = np.cumsum([0, *(len(one) for one in series)])
    columns = [start_ms + np.cumsum(np.array([step for step, _ in one], np.int64)) for one in series]
    bits = np.array([bits for one in series for _, bits in one], np.uint64)
    labels = [{"__name__": "m", "n": str(number)} for number in range(len(series))]
    return SeriesBatch(labels, ends, np.concatenate(columns), bits.view(np.float64))


@settings(deadline=None)
@given(st.lists(SAMPLES, min_size=1, max_size=3), st.integers(-(2**50), 2**50))
def test_a_stream_decodes_to_the_samples_that_were_encoded(series: list[list[tuple[int, int]]], start_ms: int) -> None:
    samples = batch(*[[(min(step, 2**53), bits) for step, bits in one] for one in series], start_ms=start_ms)
    read = read_stream(b"".join(remote_read.frames(3, samples)))
    bits, ends = samples.values.view(np.uint64), samples.offsets.tolist()
    assert read == [
        (3, labels, list(zip(samples.ts[a:b].tolist(), bits[a:b].tolist(), strict=True)))
        for labels, a, b in zip(samples.labels, ends, ends[1:], strict=False)
    ]


@pytest.mark.parametrize("count", [1, 2, READ_CHUNK_SAMPLES, READ_CHUNK_SAMPLES + 1])
def test_a_chunk_has_at_most_so_many_samples(count: int) -> None:
    chunks = xor_chunks.chunks(np.arange(count), np.ones(count), np.array([0, count]))
    sizes = [
        len(points_of(chunks.raw[a:b].tobytes())) for a, b in zip(chunks.borders, chunks.borders[1:], strict=False)
    ]
    assert sizes == [min(count, READ_CHUNK_SAMPLES)] + [1] * (count > READ_CHUNK_SAMPLES)


@pytest.mark.parametrize("change", [0, 1, -8191, 8192, 8193, -8192, 65_536, -65_536, 524_288, 524_289, -524_288])
def test_changes_at_the_borders_of_their_widths_are_exact(change: int) -> None:
    ts = np.cumsum(np.array([5, 10**6, 10**6 + change]))
    chunks = xor_chunks.chunks(ts, np.ones(3), np.array([0, 3]))
    assert [at for at, _ in points_of(chunks.raw.tobytes())] == ts.tolist()


def test_a_long_series_comes_in_several_frames_of_bounded_size() -> None:
    count = 150_000
    values = np.random.default_rng(1).integers(0, 2**62, count, dtype=np.uint64).view(np.float64)
    samples = SeriesBatch([{"__name__": "m"}], np.array([0, count]), np.arange(count) * 15_000, values)
    frames = list(remote_read.frames(0, samples))
    assert len(frames) > 1
    assert max(map(len, frames)) < READ_FRAME_BYTES * 1.01
    assert sum(len(points) for _, _, points in read_stream(frames[-1])) < count


@given(st.binary(max_size=40))
def test_frames_are_checked_by_crc_32c(raw: bytes) -> None:
    assert xor_chunks.checksum(raw) == checksum(raw)
    assert xor_chunks.checksum(b"123456789") == 0xE3069283  # the check value that the algorithm is published with
