"""Middleware that compresses answers of text of at least ``COMPRESS_BYTES_MIN`` bytes, streamed ones too.

An attacker who can make a person's browser ask, and who sees how long the answers are, can guess a secret that a
compressed page contains beside a text of the attacker (BREACH). So a page that shows a secret says ``no-store`` and
stays as it is, the token of forms has another mask in each answer, and a compressed page has a random length. Other
answers contain no secrets; they are packed as zstd where the client accepts it, at a fifth of gzip's cost. Answers that
are compressed already, and event streams, pass unchanged. Enter by ``CompressAnswers``.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import zstandard
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

COMPRESS_BYTES_MIN = 1_000  # a shorter answer fits one packet either way
_RANDOM_BYTES_MAX = 100  # of padding in a page, so that its length says little
_TEXTS = (
    "text/",
    "application/json",
    "application/x-ndjson",
    "application/javascript",
    "application/xml",
    "image/svg+xml",
)
_NOT_HELD_BACK = "text/event-stream"  # its client waits for each event
_LINES = "application/x-ndjson"  # its client draws each line as it comes
_TEXTS = ("text/", "application/json", _LINES, "application/javascript", "application/xml", "image/svg+xml")
_GZIP, _ZSTD = "gzip", "zstd"
_FLUSH_PIECE = {_GZIP: zlib.Z_SYNC_FLUSH, _ZSTD: zstandard.COMPRESSOBJ_FLUSH_BLOCK}


class _Compressor(Protocol):
    """What compresses a stream piece by piece."""

    def compress(self, data: bytes, /) -> bytes:
        """Take a piece; return what is complete."""

    def flush(self, mode: int = ..., /) -> bytes:
        """Return the rest; or, with the mode of a piece, what lets the client read all that was taken."""


class CompressAnswers:
    """The middleware: compresses what the client accepts compressed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        kind = response.get("Content-Type", "").lower()
        if not kind.startswith(_TEXTS) or kind.startswith(_NOT_HELD_BACK) or response.has_header("Content-Encoding"):
            return response
        is_page = kind.startswith("text/html")
        if is_page and "no-store" in response.get("Cache-Control", ""):
            return response
        if isinstance(response, HttpResponse) and len(response.content) < COMPRESS_BYTES_MIN:
            return response  # to every client alike
        patch_vary_headers(response, ("Accept-Encoding",))
        coding = choose_coding(request.META.get("HTTP_ACCEPT_ENCODING", ""), is_page=is_page)
        if coding:
            _compress(response, coding, is_page=is_page)
        return response


def choose_coding(accepted: str, *, is_page: bool) -> str:
    """Choose the coding of an answer by the header ``Accept-Encoding``; empty for none. Pages are always gzip."""
    weights = dict(_weights(accepted))
    others = weights.get("*", 0.0)
    codings = (_GZIP,) if is_page else (_ZSTD, _GZIP)
    best = max(codings, key=lambda coding: weights.get(coding, others))  # the first of equals
    return best if weights.get(best, others) > 0 else ""


def _weights(accepted: str) -> Iterator[tuple[str, float]]:
    for part in accepted.lower().split(","):
        name, _, parameter = part.partition(";")
        weight = parameter.replace(" ", "").removeprefix("q=")
        try:
            yield name.strip(), float(weight) if weight else 1.0
        except ValueError:
            yield name.strip(), 0.0


def _compress(response: HttpResponseBase, coding: str, *, is_page: bool) -> None:
    if isinstance(response, StreamingHttpResponse):
        if response.is_async:
            return
        mode = _FLUSH_PIECE[coding] if response.get("Content-Type", "").startswith(_LINES) else None
        response.streaming_content = _compressed(iter(response), _compressor(coding), mode)
        del response["Content-Length"]
    else:
        assert isinstance(response, HttpResponse), "BUG: an answer of an unknown type"
        if is_page:
            response.content = compress_string(response.content, max_random_bytes=_RANDOM_BYTES_MAX)
        elif coding == _ZSTD:
            response.content = zstandard.ZstdCompressor().compress(response.content)
        else:
            compressor = _compressor(coding)
            response.content = compressor.compress(response.content) + compressor.flush()
        response["Content-Length"] = str(len(response.content))
    response["Content-Encoding"] = coding
    tag = response.get("ETag", "")
    if tag.startswith('"'):  # a compressed answer has the same meaning, but other bytes
        response["ETag"] = f"W/{tag}"


def _compressor(coding: str) -> _Compressor:
    if coding == _ZSTD:
        compressor: _Compressor = zstandard.ZstdCompressor().compressobj()
        return compressor
    return zlib.compressobj(6, zlib.DEFLATED, 31)


def _compressed(pieces: Iterable[bytes], compressor: _Compressor, flush_piece: int | None) -> Iterator[bytes]:
    for piece in pieces:
        compressed = compressor.compress(piece)
        if flush_piece is not None:
            compressed += compressor.flush(flush_piece)
        if compressed:
            yield compressed
    yield compressor.flush()
