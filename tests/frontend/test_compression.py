"""Answers of text leave compressed, except those that contain a secret or are short."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory

from frontend.compression import COMPRESS_BYTES_MIN, CompressAnswers, choose_coding
from spm.clock import SystemClock
from tests.support import sample_app
from tests.support.people import Tenant

TEXT = b"seven words that stand in every answer. " * 100
BROWSER = "gzip, deflate, br, zstd"


def answer(response: HttpResponseBase, accepted: str = BROWSER) -> HttpResponseBase:
    """What leaves the middleware for this response of a view."""

    def view(_: HttpRequest) -> HttpResponseBase:
        return response

    return CompressAnswers(view)(RequestFactory().get("/", HTTP_ACCEPT_ENCODING=accepted))


def body_of(response: HttpResponseBase) -> bytes:
    """The bytes as they leave."""
    return b"".join(response)


@pytest.mark.parametrize(
    ("accepted", "page", "data"),
    [
        (BROWSER, "gzip", "zstd"),
        ("gzip", "gzip", "gzip"),
        ("GZIP;q=0.5", "gzip", "gzip"),
        ("zstd", "", "zstd"),
        ("zstd;q=0.1, gzip;q=0.9", "gzip", "gzip"),
        ("*", "gzip", "zstd"),
        ("*;q=0", "", ""),
        ("gzip;q=0, *", "", "zstd"),
        ("gzip;q=0", "", ""),
        ("gzip;q=many", "", ""),
        ("identity", "", ""),
        ("br", "", ""),
        ("", "", ""),
    ],
)
def test_the_coding_is_one_that_the_client_accepts(accepted: str, page: str, data: str) -> None:
    assert (choose_coding(accepted, is_page=True), choose_coding(accepted, is_page=False)) == (page, data)


@pytest.mark.parametrize("kind", ["application/json", "text/csv; charset=utf-8", "image/svg+xml"])
def test_a_text_is_the_same_after_the_client_has_unpacked_it(kind: str) -> None:
    response = answer(HttpResponse(TEXT, content_type=kind))
    packed = body_of(response)
    assert (response["Content-Encoding"], response["Vary"]) == ("zstd", "Accept-Encoding")
    assert response["Content-Length"] == str(len(packed))
    assert zstandard.ZstdDecompressor().decompress(packed) == TEXT


def test_a_page_is_the_same_and_its_length_says_little() -> None:
    pages = [answer(HttpResponse(TEXT)) for _ in range(30)]
    assert {gzip.decompress(body_of(page)) for page in pages} == {TEXT}
    assert len({page["Content-Length"] for page in pages}) > 5


@pytest.mark.parametrize(("coding", "unpack"), [("gzip", gzip.decompress), ("zstd", None)])
def test_a_stream_is_compressed_while_it_goes(coding: str, unpack: Any) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(50):
            yield TEXT

    response = answer(StreamingHttpResponse(pieces(), content_type="text/csv"), coding)
    packed = body_of(response)
    text = unpack(packed) if unpack else zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    assert text == 50 * TEXT
    assert len(packed) < len(text) / 20


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse(TEXT[: COMPRESS_BYTES_MIN - 1]),
        HttpResponse(TEXT, content_type="application/x-protobuf"),
        HttpResponse(TEXT, content_type="text/event-stream"),
        HttpResponse(TEXT, headers={"Content-Encoding": "br"}),
        HttpResponse(TEXT, headers={"Cache-Control": "no-store"}),
    ],
    ids=["short", "no text", "events", "compressed already", "a page with a secret"],
)
def test_other_answers_pass_unchanged(response: HttpResponse) -> None:
    before = response.content
    assert body_of(answer(response)) == before


def test_a_strong_tag_of_the_plain_bytes_becomes_a_weak_one() -> None:
    assert answer(HttpResponse(TEXT, headers={"ETag": '"one"'}))["ETag"] == 'W/"one"'


def test_pages_and_charts_leave_compressed_and_keys_never(desk: Client, alpha: Tenant, settings: Any) -> None:
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=600_000)
    accepted = {"HTTP_ACCEPT_ENCODING": BROWSER}
    chart = desk.get("/api/v1/charts", {"app": alpha.app.pk, "expr": "cpu_usage_total"}, **accepted)  # type: ignore[arg-type]
    codings = {
        name: desk.get(f"/apps/{alpha.app.pk}/{name}", **accepted).get("Content-Encoding")  # type: ignore[arg-type]
        for name in ("", "explore", "hosts/db-1", "add-data", "heartbeats")
    }
    assert chart["Content-Encoding"] == "zstd"
    assert codings == {"": "gzip", "explore": "gzip", "hosts/db-1": "gzip", "add-data": None, "heartbeats": None}
