"""Pieces of a body as they are wanted: whole lines, a file to read from, a spool on disk.

Enter by `blocks`, `lines`, `File`, `spool`; `without_mark` stands before the forms of text.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from spm.errors import BadMessage, LimitExceeded
from spm.limits import IMPORT_LINE_BYTES_MAX, IMPORT_PARQUET_BYTES_MAX, IMPORT_PIECE_BYTES

BodyPieces = Iterable[bytes]
DAMAGED = "\ufdd0"  # Unicode keeps it for such uses: no text has it
_MARK = b"\xef\xbb\xbf"
_STRAY = re.compile("[\udc80-\udcff]")


def without_byte_order_mark(pieces: BodyPieces) -> Iterator[bytes]:
    """The same without a byte order mark, with which some programs begin a text."""
    begun, rest = b"", iter(pieces)
    for piece in rest:
        begun += piece
        if len(begun) >= len(_MARK):
            break
    yield begun.removeprefix(_MARK)
    yield from rest


def blocks(pieces: BodyPieces) -> Iterator[bytes]:
    """Whole lines, some megabytes at once. Where the body breaks off, its last line does not count."""
    left = b""
    try:
        for piece in pieces:
            left += piece
            if len(left) < IMPORT_PIECE_BYTES:
                continue
            whole, _, left = left.rpartition(b"\n")
            if whole:
                yield whole
            elif len(left) > IMPORT_LINE_BYTES_MAX:
                raise LimitExceeded(
                    "a line is too long", got=f"over {IMPORT_LINE_BYTES_MAX} bytes", remedy="Cut it into several lines."
                )
    except (BadMessage, LimitExceeded):
        yield from filter(None, [left.rpartition(b"\n")[0]])
        raise
    if left:
        yield left


def lines(pieces: BodyPieces) -> Iterator[bytes]:
    """One line at a time."""
    for block in blocks(pieces):
        yield from block.split(b"\n")


class TextFile:
    """Pieces as a file of text to read from, whole lines at a time.

    Where the body breaks off it ends early, with a `fault`. Once there are bytes that are not UTF-8 it is `damaged`; in
    their place stands `DAMAGED`, as Arrow cannot tell of a row that is no text.
    """

    closed = False

    def __init__(self, pieces: BodyPieces) -> None:
        self._pieces, self._left = iter(pieces), b""
        self.fault: BadMessage | LimitExceeded | None = None
        self.damaged = False

    def begun(self, size: int) -> bytes:
        """The first bytes of what was not read yet, if there are so many; they stay."""
        while len(self._left) < size and self._more():
            pass
        return self._left[:size]

    def skip(self, size: int) -> None:
        """So many of the bytes that have begun."""
        self._left = self._left[size:]

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes: whole lines, where one ends among them."""
        while (size < 0 or len(self._left) < size) and self._more():
            pass
        end = len(self._left) if size < 0 or len(self._left) <= size else _end_of_last_line(self._left[:size]) or size
        taken, self._left = self._left[:end], self._left[end:]
        return self._clean(taken)

    def _clean(self, taken: bytes) -> bytes:
        try:
            taken.decode()
        except UnicodeDecodeError:
            self.damaged = True
            return _STRAY.sub(DAMAGED, taken.decode("utf-8", "surrogateescape")).encode()
        return taken

    def _more(self) -> bool:
        try:
            piece = next(self._pieces, None)
        except (BadMessage, LimitExceeded) as error:
            self.fault, piece = error, None
            self._left = self._left[: _end_of_last_line(self._left)]
        self._left += piece or b""
        return piece is not None

    def close(self) -> None:
        """Nothing is held."""

    def readable(self) -> bool:
        """It is."""
        return True


def spool(pieces: BodyPieces, file: BinaryIO) -> None:
    """All of a body in a file, read from its beginning."""
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


def _end_of_last_line(left: bytes) -> int:
    """Where the last whole line ends. Some programs end lines by \\r alone."""
    return left.rfind(b"\n") + 1 or left[:-1].rfind(b"\r") + 1
