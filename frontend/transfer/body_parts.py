"""Cuts a request body into what a parser needs: whole lines, a text file, or a spool file on disk.

Enter by `blocks`, `lines`, `TextFile` and `spool`; parsers of text first call `without_byte_order_mark`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from spm.errors import BadMessage, LimitExceeded
from spm.limits import IMPORT_LINE_BYTES_MAX, IMPORT_PARQUET_BYTES_MAX, IMPORT_PIECE_BYTES

BodyPieces = Iterable[bytes]
DAMAGED = "\ufdd0"  # a Unicode noncharacter, which no text contains
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATES = re.compile("[\udc80-\udcff]")


def without_byte_order_mark(pieces: BodyPieces) -> Iterator[bytes]:
    """Drop the byte order mark with which some programs begin a text."""
    start, rest = b"", iter(pieces)
    for piece in rest:
        start += piece
        if len(start) >= len(_BYTE_ORDER_MARK):
            break
    yield start.removeprefix(_BYTE_ORDER_MARK)
    yield from rest


def blocks(pieces: BodyPieces) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time. If the body breaks off, its incomplete last line is dropped."""
    rest = b""
    try:
        for piece in pieces:
            rest += piece
            if len(rest) < IMPORT_PIECE_BYTES:
                continue
            block, _, rest = rest.rpartition(b"\n")
            if block:
                yield block
            elif len(rest) > IMPORT_LINE_BYTES_MAX:
                raise LimitExceeded(
                    "a line is too long", got=f"over {IMPORT_LINE_BYTES_MAX} bytes", remedy="Cut it into several lines."
                )
    except (BadMessage, LimitExceeded):
        yield from filter(None, [rest.rpartition(b"\n")[0]])
        raise
    if rest:
        yield rest


def lines(pieces: BodyPieces) -> Iterator[bytes]:
    """Yield one line at a time."""
    for block in blocks(pieces):
        yield from block.split(b"\n")


class TextFile:
    """The pieces of a body as a text file, read by whole lines.

    If the body breaks off, the file ends early, and `fault` says why. If it contains bytes that are not UTF-8, it is
    `damaged`, and `DAMAGED` stands in their place, because Arrow cannot report a row that is not text.
    """

    closed = False

    def __init__(self, pieces: BodyPieces) -> None:
        self._pieces, self._rest = iter(pieces), b""
        self.fault: BadMessage | LimitExceeded | None = None
        self.damaged = False

    def peek(self, size: int) -> bytes:
        """Return the next bytes without reading them, at most this many."""
        while len(self._rest) < size and self._more():
            pass
        return self._rest[:size]

    def skip(self, size: int) -> None:
        """Skip bytes that `peek` has returned."""
        self._rest = self._rest[size:]

    def read(self, size: int = -1) -> bytes:
        """Read at most this many bytes: whole lines if one ends among them."""
        while (size < 0 or len(self._rest) < size) and self._more():
            pass
        end = len(self._rest) if size < 0 or len(self._rest) <= size else _end_of_last_line(self._rest[:size]) or size
        raw, self._rest = self._rest[:end], self._rest[end:]
        return self._clean(raw)

    def _clean(self, raw: bytes) -> bytes:
        try:
            raw.decode()
        except UnicodeDecodeError:
            self.damaged = True
            return _SURROGATES.sub(DAMAGED, raw.decode("utf-8", "surrogateescape")).encode()
        return raw

    def _more(self) -> bool:
        try:
            piece = next(self._pieces, None)
        except (BadMessage, LimitExceeded) as error:
            self.fault, piece = error, None
            self._rest = self._rest[: _end_of_last_line(self._rest)]
        self._rest += piece or b""
        return piece is not None

    def close(self) -> None:
        """Do nothing: the file holds no resource."""

    def readable(self) -> bool:
        """Return True, as Arrow requires."""
        return True


def spool(pieces: BodyPieces, file: BinaryIO) -> None:
    """Copy a whole body into a file and rewind it."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > IMPORT_PARQUET_BYTES_MAX:
            raise LimitExceeded(
                "the file is too large",
                got=f"over {IMPORT_PARQUET_BYTES_MAX} bytes",
                remedy="Send several smaller ones.",
            )
        file.write(piece)
    file.seek(0)


def _end_of_last_line(text: bytes) -> int:
    """Return where the last whole line ends. Some programs end lines by \\r alone."""
    return text.rfind(b"\n") + 1 or text[:-1].rfind(b"\r") + 1
