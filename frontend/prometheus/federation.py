"""The endpoints for other servers: `/federate` for the newest samples as text with types, remote read for a range.

Remote read answers with the type SAMPLES, snappy over protobuf, or with STREAMED_XOR_CHUNKS, which is computed while it
is sent and therefore not bounded by the limit of points per answer. Federation gives the newest sample of each series
within the look-back, without series that have ended, metric by metric. Clients that do not accept
`escaping=allow-utf-8`, such as Prometheus 2, would refuse a page with a quoted name: they get `_` for characters
outside the legacy set. Provenance is in headers; `explain=1` returns the full explanation instead of the samples.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import cramjam
import numpy as np
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from frontend.prometheus.bodies import read_body
from frontend.prometheus.endpoint import (
    Call,
    add_annotation_headers,
    end_on_damage,
    protobuf_endpoint,
    query_endpoint,
    streaming_response,
)
from frontend.prometheus.explanations import explanation_response
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, READ_FORM_BYTES_MAX
from spm.query import explain, streaming
from spm.query.formats import exposition, prometheus
from spm.query.formats import remote_read as formats_remote_read
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, SeriesBatch
from spm.query.request.provenance import join_provenance
from spm.wire import STALE_BITS

_TEXT = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_TEXT_QUOTED = "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
_QUOTES = re.compile(r"escaping *= *\"?allow-utf-8", re.IGNORECASE)
# A server that scrapes this with `honor_labels` would fill a missing instance with its own target.
_NO_INSTANCE = {"instance": ""}
_STREAM = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"


@query_endpoint
def federate(call: Call) -> HttpResponseBase:
    """`federate`: returns the newest samples of `match[]`."""
    selectors = call.parameters.selectors()
    if not selectors:
        raise BadQuery("no match[] parameter provided")
    now_ms, storage = call.now_ms, call.storage()
    quotes = _QUOTES.search(call.accepts) is not None
    lines: dict[str, dict[str, str]] = {}
    provenances = []
    for matchers in selectors:
        batch = storage.select(
            matchers, now_ms - call.budget.limits.lookback_ms, now_ms, check_deadline=call.budget.check_deadline
        )
        call.budget.charge_series(len(batch.labels), "match[]")
        call.budget.charge_samples(len(batch.ts))
        provenances.append(batch.provenance)
        for metric, series, line in _newest(batch, quotes=quotes):
            lines.setdefault(metric, {})[series] = line
    provenance = join_provenance(provenances)
    if call.parameters.flag("explain"):
        return explanation_response(call, storage, provenance)
    body = "".join(_family(metric, lines[metric]) for metric in sorted(lines))
    return add_annotation_headers(
        HttpResponse(body, content_type=_TEXT_QUOTED if quotes else _TEXT), provenance, storage
    )


def _newest(batch: SeriesBatch, *, quotes: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (metric, series, line) for each series that has not ended."""
    last = batch.offsets[1:] - 1
    is_current = batch.values[last].view(np.uint64) != STALE_BITS
    for row in np.flatnonzero(is_current).tolist():
        labels = _NO_INSTANCE | batch.labels[row]
        shown = labels if quotes else exposition.with_plain_names(labels)
        at, series = int(last[row]), exposition.series_text(shown)
        line = f"{series} {prometheus.number(float(batch.values[at]))} {int(batch.ts[at])}\n"
        yield shown[METRIC_NAME], series, line


def _family(metric: str, lines: Mapping[str, str]) -> str:
    """Write the lines of a metric, which must be contiguous."""
    head = f"# TYPE {exposition.name_text(metric)} untyped\n"
    return head + "".join(lines[series] for series in sorted(lines))


@protobuf_endpoint
def remote_read(call: Call, request: HttpRequest, resources: ExitStack) -> HttpResponseBase:
    """`read`: returns the samples of the selectors in the request."""
    storage, remote_request = (
        call.storage(),
        formats_remote_read.parse_request(_decompress(request)).until(call.now_ms + FUTURE_MS),
    )
    if remote_request.streamed or call.parameters.flag("explain"):
        provenance = join_provenance(
            explain.of_samples(storage, query.start_ms - 1, query.end_ms) for query in remote_request.queries
        )
        if call.parameters.flag("explain"):
            return explanation_response(call, storage, provenance)
        return add_annotation_headers(
            streaming_response(
                call, end_on_damage(_frames(call, storage, remote_request), storage), resources, _STREAM
            ),
            provenance,
            storage,
        )
    batches = []
    for query in remote_request.queries:
        batch = storage.select(
            query.matchers, query.start_ms - 1, query.end_ms, check_deadline=call.budget.check_deadline
        )
        call.budget.charge_series(len(batch.labels), "the read query")
        call.budget.charge_samples(len(batch.ts))
        call.budget.check_points(call.budget.usage.samples)
        batches.append(batch)
    compressed = bytes(cramjam.snappy.compress_raw(formats_remote_read.encode_response(batches)))
    response = HttpResponse(compressed, content_type="application/x-protobuf", headers={"Content-Encoding": "snappy"})
    return add_annotation_headers(response, join_provenance(batch.provenance for batch in batches), storage)


def _frames(call: Call, storage: AppStorage, remote_request: formats_remote_read.RemoteReadRequest) -> Iterator[bytes]:
    for number, query in enumerate(remote_request.queries):
        parts = streaming.stream_by_labels(storage, query.matchers, query.start_ms - 1, query.end_ms, call.budget)
        for batch in parts:
            yield from formats_remote_read.frames(number, batch)


def _decompress(request: HttpRequest) -> bytes:
    """Decompress the body, unless its header says that it would become too large."""
    body = read_body(request, "read request")
    try:
        if cramjam.snappy.decompress_raw_len(body) > READ_FORM_BYTES_MAX:
            raise BadQuery(f"a read request has at most {READ_FORM_BYTES_MAX} bytes after decompression")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise BadQuery("the body is not compressed by snappy") from error
