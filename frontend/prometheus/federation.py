"""Reading by other servers: `/federate` for the newest samples as text, remote read for all of a range.

Remote read answers with the type SAMPLES, snappy over protobuf, or with STREAMED_XOR_CHUNKS, made while it is sent and
therefore not bounded by what one answer may hold. Federation gives the newest sample of each series within the
look-back, without those that have ended, metric by metric. Readers that do not accept `escaping=allow-utf-8`, as those
of Prometheus 2, would refuse a page with a quoted name: they get `_` for what their alphabet lacks. What the samples
rest on stands in headers; `explain=1` gives all of it, instead of the samples.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import cramjam
import numpy as np
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from frontend.prometheus.bodies import whole
from frontend.prometheus.endpoint import Call, heavy, protobuf, remarked, stream
from frontend.prometheus.explaining import explained_alone
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, READ_FORM_BYTES_MAX
from spm.query import explain, streaming
from spm.query.formats import exposition, prometheus
from spm.query.formats import remote_read as formats_remote_read
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, SeriesBatch
from spm.query.request.provenance import joined
from spm.wire import STALE_BITS

_TEXT = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_TEXT_QUOTED = "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
_QUOTES = re.compile(r"escaping *= *\"?allow-utf-8", re.IGNORECASE)
# Whoever scrapes this with `honor_labels` writes his own target into an instance that is not named.
_NO_INSTANCE = {"instance": ""}
_STREAM = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"


@heavy
def federate(call: Call) -> HttpResponseBase:
    """`federate`: the newest samples of `match[]`."""
    selectors = call.asked.selectors()
    if not selectors:
        raise BadQuery("no match[] parameter provided")
    now_ms, storage = call.now_ms, call.storage()
    quotes = _QUOTES.search(call.accepts) is not None
    found: dict[str, dict[str, str]] = {}
    bases = []
    for matchers in selectors:
        batch = storage.select(matchers, now_ms - call.budget.allowed.lookback_ms, now_ms, tick=call.budget.tick)
        call.budget.series(len(batch.labels), "match[]")
        call.budget.samples(len(batch.ts))
        bases.append(batch.basis)
        for metric, series, line in _newest(batch, quotes=quotes):
            found.setdefault(metric, {})[series] = line
    basis = joined(bases)
    if call.asked.flag("explain"):
        return explained_alone(call, storage, basis)
    body = "".join(_family(metric, found[metric]) for metric in sorted(found))
    return remarked(HttpResponse(body, content_type=_TEXT_QUOTED if quotes else _TEXT), basis)


def _newest(batch: SeriesBatch, *, quotes: bool) -> Iterator[tuple[str, str, str]]:
    """(metric, series, line) for each series that has not ended."""
    last = batch.offsets[1:] - 1
    going = batch.values[last].view(np.uint64) != STALE_BITS
    for row in np.flatnonzero(going).tolist():
        labels = _NO_INSTANCE | batch.labels[row]
        shown = labels if quotes else exposition.plain(labels)
        at, series = int(last[row]), exposition.series_text(shown)
        line = f"{series} {prometheus.number(float(batch.values[at]))} {int(batch.ts[at])}\n"
        yield shown[METRIC_NAME], series, line


def _family(metric: str, lines: Mapping[str, str]) -> str:
    """The lines of a metric, which have to stand together."""
    head = f"# TYPE {exposition.name_text(metric)} untyped\n"
    return head + "".join(lines[series] for series in sorted(lines))


@protobuf
def remote_read(call: Call, request: HttpRequest, held: ExitStack) -> HttpResponseBase:
    """`read`: the samples of some selectors."""
    storage, wanted = call.storage(), formats_remote_read.asked(_unpacked(request)).until(call.now_ms + FUTURE_MS)
    if wanted.streamed or call.asked.flag("explain"):
        basis = joined(explain.of_samples(storage, query.start_ms - 1, query.end_ms) for query in wanted.queries)
        if call.asked.flag("explain"):
            return explained_alone(call, storage, basis)
        return remarked(stream(call, _frames(call, storage, wanted), held, _STREAM), basis)
    batches = []
    for query in wanted.queries:
        batch = storage.select(query.matchers, query.start_ms - 1, query.end_ms, tick=call.budget.tick)
        call.budget.series(len(batch.labels), "the read query")
        call.budget.samples(len(batch.ts))
        call.budget.shown(call.budget.usage.samples)
        batches.append(batch)
    packed = bytes(cramjam.snappy.compress_raw(formats_remote_read.answered(batches)))
    response = HttpResponse(packed, content_type="application/x-protobuf", headers={"Content-Encoding": "snappy"})
    return remarked(response, joined(batch.basis for batch in batches))


def _frames(call: Call, storage: AppStorage, wanted: formats_remote_read.Request) -> Iterator[bytes]:
    for number, query in enumerate(wanted.queries):
        parts = streaming.by_labels(storage, query.matchers, query.start_ms - 1, query.end_ms, call.budget)
        for batch in parts:
            yield from formats_remote_read.frames(number, batch)


def _unpacked(request: HttpRequest) -> bytes:
    """The body; what says that it would become too large is not unpacked."""
    body = whole(request, "read request")
    try:
        if cramjam.snappy.decompress_raw_len(body) > READ_FORM_BYTES_MAX:
            raise BadQuery(f"a read request has at most {READ_FORM_BYTES_MAX} bytes when it is unpacked")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise BadQuery("the body is not compressed by snappy") from error
