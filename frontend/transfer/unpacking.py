"""Reads the body of an upload piece by piece and decompresses it, with limits on both sizes."""

import zlib
from collections.abc import Iterator

from django.http import HttpRequest

from ingest.http.body import next_piece
from spm.errors import BadMessage, LimitExceeded
from spm.limits import GZIP_MEMBERS_MAX, IMPORT_BYTES_MAX, IMPORT_DECODED_BYTES_MAX

_PIECE_BYTES = 1 << 18
IMPORT_RATIO_MAX = 200  # of decompressed to sent bytes: samples pack to a tenth or a fiftieth, a bomb to a thousandth
_RATIO_FROM_BYTES = 4_000_000  # decompressed: the beginning of a file may repeat itself


def pieces_of(request: HttpRequest) -> Iterator[bytes]:
    """Yield pieces of some hundred kilobytes; raises `BadMessage` if the body breaks off or cannot be decompressed."""
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip"):
        raise BadMessage(
            "unknown Content-Encoding",
            got=encoding[:40],
            wanted="gzip or none",
            remedy="Compress the body with gzip, once, or not at all.",
        )
    return _decompressed(_raw(request)) if encoding == "gzip" else _raw(request)


def _raw(request: HttpRequest) -> Iterator[bytes]:
    length = request.META.get("CONTENT_LENGTH") or ""
    content_length = int(length) if length.isdecimal() else None
    # Without a length (chunked) the server's own stream is read, if the server promises that it ends.
    stream = (
        request.META["wsgi.input"] if content_length is None and request.META.get("wsgi.input_terminated") else request
    )
    size = 0
    while piece := next_piece(stream, _PIECE_BYTES, size, content_length):
        size += len(piece)
        if size > IMPORT_BYTES_MAX:
            raise LimitExceeded("the body is too large", got=f"over {IMPORT_BYTES_MAX} bytes", remedy="Cut the file.")
        yield piece
    if content_length is not None and size != content_length:
        raise BadMessage(
            "the body is cut off",
            got=f"{size} bytes",
            wanted=f"{content_length}, its Content-Length",
            remedy="Send all of it.",
        )


def _decompressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflater, members, size, sent = zlib.decompressobj(31), 1, 0, 0
    for piece in pieces:
        rest, sent = piece, sent + len(piece)
        while rest:
            if inflater.eof:
                inflater, members = zlib.decompressobj(31), members + 1
                if members > GZIP_MEMBERS_MAX:
                    raise LimitExceeded(
                        "too many gzip members",
                        got=members,
                        wanted=f"at most {GZIP_MEMBERS_MAX}",
                        remedy="Compress the file in one go.",
                    )
            try:
                output = inflater.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise BadMessage(
                    "the body cannot be decompressed",
                    got=str(error),
                    wanted="gzip",
                    remedy="Is it compressed and complete (gzip -t)?",
                ) from error
            size += len(output)
            if size > IMPORT_DECODED_BYTES_MAX:
                raise LimitExceeded(
                    "the body is too large",
                    got=f"over {IMPORT_DECODED_BYTES_MAX} bytes decompressed",
                    remedy="Cut the file.",
                )
            if size > max(_RATIO_FROM_BYTES, IMPORT_RATIO_MAX * (sent - len(rest) + _PIECE_BYTES // 16)):
                raise LimitExceeded(
                    "the body grows too much when it is decompressed",
                    got=f"over {IMPORT_RATIO_MAX} times its size",
                    wanted=f"at most {IMPORT_RATIO_MAX} times",
                    remedy="Samples pack to a tenth or a fiftieth. Send the file without compression.",
                )
            if output:
                yield output
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if not inflater.eof:
        raise BadMessage("the compressed body is cut off", wanted="all of it", remedy="Is the file complete (gzip -t)?")
