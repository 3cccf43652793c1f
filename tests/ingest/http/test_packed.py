"""Bodies packed with snappy and zstd: read whole, refused when cut off, and refused unexploded when they are bombs."""

import io
import time
import tracemalloc
import zlib
from functools import lru_cache

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.http import packed
from ingest.http.body import UnknownEncoding, read_body
from spm.errors import BadMessage, LimitExceeded

PLAIN = b"abc" * 1000 + bytes(range(256)) * 100
SNAPPY = bytes(cramjam.snappy.compress_raw(PLAIN))
FRAMED = bytes(cramjam.snappy.compress(PLAIN))
ZSTD = zstandard.compress(PLAIN)
STREAMED = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(PLAIN)
FORMS = [
    pytest.param(SNAPPY, "snappy", id="a snappy block"),
    pytest.param(FRAMED, "snappy", id="framed snappy"),
    pytest.param(FRAMED, "x-snappy-framed", id="framed snappy by its own name"),
    pytest.param(ZSTD, "zstd", id="zstd with its size"),
    pytest.param(STREAMED, "zstd", id="zstd without its size, with a checksum"),
    pytest.param(zstandard.compress(PLAIN[:5]) + zstandard.compress(PLAIN[5:]), "zstd", id="zstd in two frames"),
    pytest.param(b"\x50\x2a\x4d\x18\x02\0\0\0xx" + ZSTD, "zstd", id="zstd behind a frame to be skipped"),
]


def read(raw: bytes, encoding: str) -> bytes:
    return read_body(io.BytesIO(raw), encoding=encoding, length=len(raw))


@pytest.mark.parametrize(("raw", "encoding"), FORMS)
def test_body_is_read_in_every_packing(raw: bytes, encoding: str) -> None:
    assert read(raw, encoding) == PLAIN


@pytest.mark.parametrize(("raw", "encoding"), FORMS[:5])
def test_body_that_is_cut_off_is_refused(raw: bytes, encoding: str) -> None:
    for end in (0, 1, 3, len(raw) // 2, len(raw) - 1):
        with pytest.raises(BadMessage):
            read(raw[:end], encoding)


@lru_cache
def bomb(name: str) -> tuple[bytes, str]:
    """Several times what a body may become."""
    if name == "gzip" or name == "deflate":
        deflate = zlib.compressobj(9, wbits=31 if name == "gzip" else 15)
        return b"".join(deflate.compress(bytes(1 << 22)) for _ in range(24)) + deflate.flush(), name
    if name.startswith("zstd"):
        zeros = bytes(1 << 26)
        return zstandard.ZstdCompressor(write_content_size=name == "zstd").compress(zeros), "zstd"
    make = cramjam.snappy.compress_raw if name == "snappy" else cramjam.snappy.compress
    return bytes(make(bytes(1 << 26))), "snappy"


@pytest.mark.timed
@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd", "zstd, size unsaid", "snappy", "snappy framed"])
def test_bomb_is_refused_within_its_memory_and_time(name: str) -> None:
    raw, encoding = bomb(name)
    tracemalloc.start()
    with pytest.raises(LimitExceeded, match="too large"):
        read(raw, encoding)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32_000_000
    begun = time.process_time()
    with pytest.raises(LimitExceeded):
        read(raw, encoding)
    assert time.process_time() - begun < 0.2


@pytest.mark.parametrize("encoding", ["gzip, gzip", "zstd,gzip", "br", "snappy, identity"])
def test_encodings_one_over_another_are_refused(encoding: str) -> None:
    with pytest.raises(UnknownEncoding, match=r"several times|unknown"):
        read(b"x", encoding)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xff\xff\xff\xff\x0f" + b"x" * 20, id="a block that says it has four gigabytes"),
        pytest.param(b"\xff\x06\x00\x00sNaPpY" + (b"\0\x09\0\0" + b"crc_" + b"\xff\xff\xff\xff\x0f"), id="a chunk"),
    ],
)
def test_snappy_that_lies_about_its_size_allocates_nothing(raw: bytes) -> None:
    tracemalloc.start()
    with pytest.raises((LimitExceeded, BadMessage)):
        read(raw, "snappy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_zstd_that_asks_for_a_large_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    raw = stream.compress(PLAIN) + stream.flush()
    with pytest.raises(LimitExceeded, match="window"):
        read(raw, "zstd")


def test_pieces_of_a_packed_body_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "PACKED_PIECES_MAX", 2)
    assert read(zstandard.compress(b"a") * 2, "zstd") == b"aa"
    with pytest.raises(LimitExceeded, match="zstd blocks"):
        read(zstandard.compress(b"a") * 3, "zstd")
    with pytest.raises(LimitExceeded, match="snappy chunks"):
        read(bytes(cramjam.snappy.compress(bytes(200_000))), "snappy")


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=2_000),
    st.sampled_from(["snappy", "framed", "zstd"]),
    st.integers(0, 3_000),
    st.binary(max_size=3),
)
def test_damaged_body_is_refused_or_read_and_nothing_else(plain: bytes, form: str, at: int, change: bytes) -> None:
    make = {"snappy": cramjam.snappy.compress_raw, "framed": cramjam.snappy.compress, "zstd": zstandard.compress}[form]
    raw = bytearray(bytes(make(plain)))
    raw[at % (len(raw) + 1) : at % (len(raw) + 1) + len(change)] = change
    try:
        read(bytes(raw), "zstd" if form == "zstd" else "snappy")
    except (BadMessage, LimitExceeded):
        return
