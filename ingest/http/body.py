"""Reads the body of a request and decompresses it under limits. Enter by ``read_body``.

Django's own reading is not used: its limit is meant for forms. Decompression stops at the first byte over the limit, or
before the first byte where the format says how large it becomes (``packed``), so that a decompression bomb costs no
more memory than an honest body. One encoding at a time: a client that encodes twice is broken, or hides something.
"""

import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Protocol

from ingest.http.exchange import PushRequest
from ingest.http.packed import UNPACK, cut_off, too_large
from spm.errors import BadMessage, Explained, LimitExceeded
from spm.limits import BODY_BYTES_MAX, BODY_DECODED_BYTES_MAX, GZIP_MEMBERS_MAX

_PIECE_BYTES = 1 << 16
_STEP_BYTES = 1 << 18
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class UnknownEncoding(Explained):
    """A body in a Content-Encoding that is not supported."""


class Stream(Protocol):
    """The stream that a body is read from."""

    def read(self, size: int, /) -> bytes: ...


def read_body(stream: Stream, *, encoding: str, length: int | None, decoded_max: int | None = None) -> bytes:
    """Return the decoded body, of at most ``decoded_max`` bytes, or else of ``BODY_DECODED_BYTES_MAX``.

    Raises ``LimitExceeded`` when it is too large, ``UnknownEncoding``, or ``BadMessage`` when it is damaged or cut off.
    """
    if length is not None and length > BODY_BYTES_MAX:
        raise too_large_body(length, BODY_BYTES_MAX)
    encoding, most = encoding.strip().lower(), BODY_DECODED_BYTES_MAX if decoded_max is None else decoded_max
    if encoding in ("", "identity"):
        return b"".join(_pieces(stream, length))
    if encoding in UNPACK:
        return UNPACK[encoding](b"".join(_pieces(stream, length)), most)
    if encoding not in _WINDOWS:
        raise _unknown(encoding)
    return _inflated(_pieces(stream, length), _WINDOWS[encoding], most)


def next_piece(stream: Stream, most: int, size: int, length: int | None) -> bytes:
    """Return at most so many bytes after the first ``size`` of a body; raise ``BadMessage`` where it breaks off."""
    try:
        return stream.read(most)
    except OSError as error:
        raise BadMessage(
            "the connection broke within the body", got=f"{size} bytes", wanted=length, remedy="Send it whole."
        ) from error


def _unknown(encoding: str) -> UnknownEncoding:
    several = "," in encoding
    return UnknownEncoding(
        "the body is encoded several times over" if several else "unknown Content-Encoding",
        got=encoding[:40],
        wanted="gzip, deflate, snappy, zstd or none",
        remedy="Encode it once." if several else "",
    )


def _pieces(stream: Stream, length: int | None) -> Iterator[bytes]:
    """Yield the body as sent. One that ends before its length is rejected: its last line could be a wrong number."""
    size = 0
    while piece := next_piece(stream, _PIECE_BYTES, size, length):
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise too_large_body(size, BODY_BYTES_MAX)
        yield piece
    if length is not None and size != length:
        raise BadMessage("the body is cut off", got=f"{size} bytes", wanted=f"{length}, its Content-Length")


def _inflated(pieces: Iterator[bytes], window: int, most: int) -> bytes:
    decoded: list[bytes] = []
    size = 0
    try:
        for output in _outputs(pieces, window):
            size += len(output)
            if size > most:
                raise too_large(most)
            decoded.append(output)
    except zlib.error as error:
        raise BadMessage("the body cannot be decompressed", got=str(error), wanted="what its encoding says") from error
    return b"".join(decoded)


def _outputs(pieces: Iterator[bytes], window: int) -> Iterator[bytes]:
    """Yield what the pieces inflate to, in small steps; gzip members may follow each other."""
    inflater, members = zlib.decompressobj(window), 1
    for piece in pieces:
        rest = piece
        while rest:
            if inflater.eof:
                inflater, members = zlib.decompressobj(window), members + 1
                if members > GZIP_MEMBERS_MAX:
                    raise LimitExceeded("too many gzip members", got=members, wanted=f"at most {GZIP_MEMBERS_MAX}")
            output = inflater.decompress(rest, _STEP_BYTES)
            while len(output) == _STEP_BYTES and not inflater.eof:  # more may wait although all input is consumed
                yield output
                output = inflater.decompress(inflater.unconsumed_tail, _STEP_BYTES)
            yield output
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if not inflater.eof:
        raise cut_off()


def too_large_body(got: object, limit: int) -> LimitExceeded:
    """Return the error of a body with more bytes than the limit."""
    return LimitExceeded(
        "the body is too large", got=f"{got} bytes", wanted=f"at most {limit}", remedy="Send smaller bodies."
    )


class LargeBody(Exception):
    """A body is too large to be read with others once it is decompressed."""


def decoded_body(request: PushRequest, raw: bytes, most: int | None = None) -> bytes:
    """Return a packed body decompressed; raise ``LargeBody`` for one of more than ``most`` bytes."""
    try:
        return read_body(BytesIO(raw), encoding=request.header("content-encoding"), length=len(raw), decoded_max=most)
    except LimitExceeded as error:
        if most is None:
            raise
        raise LargeBody from error
