"""`/api/v1/export`: streams the samples of any selectors and time range.

Series are read in portions that lie together, and time in stretches that grow and shrink with their number of samples,
so that memory is bounded for every request. The first bytes are produced before the answer begins, so that a refusal
still has its status. A later error closes the connection, which clients notice by the missing end. Headers carry the
provenance in short; `explain=1` returns the full provenance instead of the samples. Enter by `export`.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from frontend.prometheus.endpoint import (
    Call,
    accepts_gzip,
    add_annotation_headers,
    end_on_damage,
    streaming_endpoint,
    streaming_response,
)
from frontend.prometheus.explanations import explanation_response
from frontend.transfer.writers import FORMS, TABLES
from spm.errors import BadQuery, QueryTooLarge
from spm.limits import (
    EXPORT_LABELS_MAX,
    EXPORT_SERIES_AT_ONCE,
    EXPORT_STRETCH_HOURS_MAX,
    EXPORT_STRETCH_SAMPLES,
    FUTURE_MS,
    HOUR_MS,
)
from spm.query import explain
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher, SeriesBatch
from spm.query.series.index import SeriesSelection


@streaming_endpoint
def export(call: Call, request: HttpRequest, resources: ExitStack) -> HttpResponseBase:
    """Stream the samples with start <= time <= end of all series that any `match[]` selects, each once."""
    form = call.parameters.text("format") or "jsonl"
    if form not in FORMS:
        raise BadQuery(f'invalid parameter "format": "{form[:40]}" is none of {", ".join(FORMS)}')
    selectors = call.parameters.selectors()
    if not selectors:
        raise BadQuery("no match[] parameter provided")
    start, end = call.parameters.instant("start", 0), call.parameters.instant("end", call.now_ms + FUTURE_MS)
    if end < start:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    storage, (write, content_type) = call.storage(), FORMS[form]
    provenance = explain.of_samples(storage, start - 1, end)
    if call.parameters.flag("explain"):
        return explanation_response(call, storage, provenance)
    labels = _labels(storage, selectors, start, end) if form in TABLES else []
    batches = end_on_damage(_batches(call, storage, selectors, start - 1, end), storage)
    is_compressed = accepts_gzip(request.META) and form != "parquet"
    pieces = _compressed(write(batches, labels)) if is_compressed else write(batches, labels)
    response = streaming_response(call, pieces, resources, content_type)
    response["Content-Disposition"] = f'attachment; filename="export.{form}"'
    if is_compressed:
        response["Content-Encoding"] = "gzip"
    return add_annotation_headers(response, provenance, storage)


def _batches(
    call: Call, storage: AppStorage, selectors: Sequence[tuple[Matcher, ...]], start_ms: int, end_ms: int
) -> Iterator[SeriesBatch]:
    for number, matchers in enumerate(selectors):
        for portion in storage.portions(matchers, EXPORT_SERIES_AT_ONCE):
            rest = storage.without(portion, selectors[:number])  # earlier selectors have exported the others
            if len(rest):
                yield from _stretches(call, storage, rest, start_ms, end_ms)


def _stretches(
    call: Call, storage: AppStorage, portion: SeriesSelection, start_ms: int, end_ms: int
) -> Iterator[SeriesBatch]:
    """Yield a portion in order of time, with a number of hours per stretch that keeps it neither tiny nor huge."""
    hours, at, stretch_hours = storage.hours_with_samples(start_ms, end_ms), 0, 1
    while at < len(hours):
        call.budget.check_deadline()
        last = min(at + stretch_hours, len(hours)) - 1
        low, high = max(hours[at] * HOUR_MS, start_ms), min((hours[last] + 1) * HOUR_MS, end_ms)
        batch = storage.select_portion(portion, low, high, check_deadline=call.budget.check_deadline)
        if len(batch.ts):
            yield batch
        at = last + 1
        if len(batch.ts) * 2 < EXPORT_STRETCH_SAMPLES:
            stretch_hours = min(stretch_hours * 2, EXPORT_STRETCH_HOURS_MAX)
        elif len(batch.ts) > EXPORT_STRETCH_SAMPLES:
            stretch_hours = max(stretch_hours // 2, 1)


def _labels(storage: AppStorage, selectors: Sequence[tuple[Matcher, ...]], start: int, end: int) -> list[str]:
    names = [name for name in storage.label_names(selectors, start, end) if name != METRIC_NAME]
    if len(names) > EXPORT_LABELS_MAX:
        raise QueryTooLarge(
            f"a table would have {len(names)} columns for labels; at most {EXPORT_LABELS_MAX} are allowed: "
            "use format=jsonl, or a narrower selector"
        )
    return names


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    for piece in pieces:
        if compressed := compressor.compress(piece):
            yield compressed
    yield compressor.flush()
