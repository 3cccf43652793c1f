"""Decompresses zstd and snappy: the sizes are checked first, so that a decompression bomb is rejected unpacked.

Both formats declare before each piece how large it becomes. The two libraries do not stop at a limit of ours (zstandard
ignores it where a frame declares its size, cramjam has none). So the heads of frames and chunks are checked without
unpacking anything: that shows what is cut off, and what would become too large. Enter by ``UNPACK``: name of the
Content-Encoding → function of (body, limit).
"""

from collections.abc import Callable, Mapping

import cramjam
import zstandard

from spm.errors import BadMessage, LimitExceeded
from spm.limits import PACKED_PIECES_MAX, ZSTD_WINDOW_BYTES_MAX

Unpack = Callable[[bytes, int], bytes]
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPED = 0x184D2A50  # and the fifteen numbers after it
_RAW, _RLE = 0, 1  # kinds of zstd blocks; 2 is a compressed one
_SNAPPY_STREAM = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN = 0x00, 0x01  # kinds of snappy chunks; all others below 0x80 are errors


def snappy(body: bytes, limit: int) -> bytes:
    """Decompress the block form (Prometheus) or the framed one, which begins with a magic number."""
    return _snappy_frames(body, limit) if body.startswith(_SNAPPY_STREAM) else _snappy_block(body, limit)


def zstd(body: bytes, limit: int) -> bytes:
    """Decompress all frames of a body."""
    _check_zstd(body, limit)
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        with unpacker.stream_reader(body, read_across_frames=True) as reader:
            decompressed = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise _damaged("zstd", error) from error
    if len(decompressed) > limit:
        raise too_large(limit)
    return decompressed


UNPACK: Mapping[str, Unpack] = {"snappy": snappy, "x-snappy-framed": snappy, "zstd": zstd}


def too_large(limit: int) -> LimitExceeded:
    """Return the error of a body that becomes larger than the limit."""
    return LimitExceeded(
        "the body is too large",
        got=f"over {limit} bytes decompressed",
        wanted=f"at most {limit}",
        remedy="Send smaller bodies.",
    )


def cut_off() -> BadMessage:
    """Return the error of a body whose end is missing."""
    return BadMessage("the compressed body is cut off", wanted="all of it")


def _damaged(form: str, error: Exception) -> BadMessage:
    return BadMessage("the body cannot be decompressed", got=str(error)[:200], wanted=form)


def _too_many(what: str) -> LimitExceeded:
    return LimitExceeded(f"too many {what} in one body", wanted=f"at most {PACKED_PIECES_MAX}")


def _snappy_block(body: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(body) > limit:
            raise too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from error


def _snappy_frames(body: bytes, limit: int) -> bytes:
    """1. Add up the sizes in the heads of all chunks; 2. decompress, which checks every checksum."""
    at, size, chunks = 0, 0, 0
    try:
        while at < len(body):
            kind, length = body[at], int.from_bytes(body[at + 1 : at + 4], "little")
            start, at = at + 4, at + 4 + length
            if at > len(body):
                raise cut_off()
            if kind == _COMPRESSED:
                size += min(cramjam.snappy.decompress_raw_len(body[start + 4 : min(at, start + 16)]), 1 << 32)
            elif kind == _PLAIN:
                size += length - 4
            if size > limit:
                raise too_large(limit)
            chunks += 1
            if chunks > PACKED_PIECES_MAX:
                raise _too_many("snappy chunks")
        return bytes(cramjam.snappy.decompress(body))
    except cramjam.DecompressionError as error:
        raise _damaged("framed snappy", error) from error


def _check_zstd(body: bytes, limit: int) -> None:
    """Reject a body that is cut off, has too many blocks or too large a window, or declares too large a size."""
    if not body:
        raise cut_off()
    at, size, blocks = 0, 0, 0
    while at < len(body):
        magic = int.from_bytes(body[at : at + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPED:
            blocks += 1
            at += 8 + int.from_bytes(body[at + 4 : at + 8], "little")
        else:
            at, size, blocks = _check_frame(body, at, size, blocks, limit)
        if blocks > PACKED_PIECES_MAX:
            raise _too_many("zstd blocks")
    if at > len(body):
        raise cut_off()


def _check_frame(body: bytes, start: int, size: int, blocks: int, limit: int) -> tuple[int, int, int]:
    """Check one frame; return where it ends, and the size and number of blocks so far."""
    try:
        head = zstandard.get_frame_parameters(body[start : start + 18])
        at = start + zstandard.frame_header_size(body[start : start + 18])
    except zstandard.ZstdError as error:
        raise _damaged("zstd", error) from error
    if head.window_size > ZSTD_WINDOW_BYTES_MAX:
        raise LimitExceeded(
            "the zstd window is too large", got=head.window_size, wanted=f"at most {ZSTD_WINDOW_BYTES_MAX} bytes"
        )
    declared = head.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
    if declared and size + head.content_size > limit:
        raise too_large(limit)
    last = False
    while not last:
        if at + 3 > len(body):
            raise cut_off()
        header = int.from_bytes(body[at : at + 3], "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        size += length if kind in (_RAW, _RLE) else 0
        at += 3 + (1 if kind == _RLE else length)
        blocks += 1
        if size > limit:
            raise too_large(limit)
        if blocks > PACKED_PIECES_MAX:
            raise _too_many("zstd blocks")
    at += 4 if head.has_checksum else 0
    if at > len(body):
        raise cut_off()
    return at, size, blocks
