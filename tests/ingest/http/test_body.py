"""Bodies are read and decompressed under limits."""

import gzip
import io
import tracemalloc
import zlib

import pytest

from ingest.http import body as bodies
from ingest.http.body import UnknownEncoding, read_body
from spm.errors import BadMessage, LimitExceeded
from spm.limits import BODY_DECODED_BYTES_MAX


def read(raw: bytes, encoding: str = "", length: int | None = None) -> bytes:
    return read_body(io.BytesIO(raw), encoding=encoding, length=length)


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        pytest.param(b"abc" * 1000, "", id="plain"),
        pytest.param(b"abc" * 1000, "identity", id="identity"),
        pytest.param(gzip.compress(b"abc" * 1000), "gzip", id="gzip"),
        pytest.param(gzip.compress(b"abc" * 1000), " GZIP ", id="gzip in capitals"),
        pytest.param(gzip.compress(b"abc" * 400) + gzip.compress(b"abc" * 600), "gzip", id="gzip in two members"),
        pytest.param(zlib.compress(b"abc" * 1000), "deflate", id="deflate"),
    ],
)
def test_body_is_read_in_every_encoding(raw: bytes, encoding: str) -> None:
    assert read(raw, encoding) == b"abc" * 1000


@pytest.mark.parametrize(
    "raw",
    [gzip.compress(b"abc")[:-1], gzip.compress(b"abc")[:5], b"", b"abc", gzip.compress(b"abc") + b"junk"],
    ids=["last byte missing", "half", "empty", "not compressed", "junk behind"],
)
def test_damaged_gzip_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        read(raw, "gzip")


def test_unknown_encoding_is_refused() -> None:
    with pytest.raises(UnknownEncoding, match="br"):
        read(b"abc", "br")


def test_body_is_limited_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 100)
    assert len(read(b"x" * 100)) == 100
    with pytest.raises(LimitExceeded):
        read(b"x" * 101)


def test_announced_length_over_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 100)
    assert len(read(b"x" * 100, length=100)) == 100
    with pytest.raises(LimitExceeded):
        read(b"", length=101)


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_body_shorter_than_announced_is_refused(encoding: str) -> None:
    raw = gzip.compress(b"m v=12") if encoding else b"m v=12"
    assert read(raw, encoding, length=len(raw)) == b"m v=12"
    with pytest.raises(BadMessage, match="cut off"):
        read(raw, encoding, length=len(raw) + 1)


def test_a_broken_connection_is_refused() -> None:
    class Broken:
        def read(self, size: int, /) -> bytes:
            raise ConnectionResetError

    with pytest.raises(BadMessage, match="connection broke"):
        read_body(Broken(), encoding="", length=None)


def test_body_is_limited_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_DECODED_BYTES_MAX", 1000)
    assert len(read(gzip.compress(b"x" * 1000), "gzip")) == 1000
    for bomb in (gzip.compress(b"x" * 1001), gzip.compress(b"x" * 600) * 2):
        with pytest.raises(LimitExceeded):
            read(bomb, "gzip")


def test_gzip_members_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GZIP_MEMBERS_MAX", 2)
    assert read(gzip.compress(b"x") * 2, "gzip") == b"xx"
    with pytest.raises(LimitExceeded, match="members"):
        read(gzip.compress(b"x") * 3, "gzip")


@pytest.mark.parametrize("size", [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3 << 18])
def test_body_of_whole_steps_is_read_to_its_end(size: int) -> None:
    assert len(read(gzip.compress(bytes(size)), "gzip")) == len(read(zlib.compress(bytes(size)), "deflate")) == size


def test_bomb_costs_no_more_memory_than_the_limit() -> None:
    deflate = zlib.compressobj(9, wbits=31)
    bomb = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(512)) + deflate.flush()
    tracemalloc.start()
    with pytest.raises(LimitExceeded):
        read(bomb, "gzip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.6 * BODY_DECODED_BYTES_MAX
