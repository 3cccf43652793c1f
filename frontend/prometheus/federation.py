"""Reading by other servers: `/federate` for the newest samples as text, remote read for all of a range.

Remote read answers with the type SAMPLES, snappy over protobuf, or with STREAMED_XOR_CHUNKS, made while it is sent and
therefore not bounded by what one answer may hold. Federation gives the newest sample of each series within the
look-back, without those that have ended. What the samples rest on stands in headers; `explain=1` gives all of it,
instead of the samples.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import cramjam
import numpy as np
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from frontend.prometheus.bodies import whole
from frontend.prometheus.door import Call, heavy, protobuf, remarked, stream
from frontend.prometheus.explaining import explained_alone
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, READ_FORM_BYTES_MAX
from spm.query import explain, exposition, prometheus, remote, stretches
from spm.query.basis import joined
from spm.query.select import METRIC_NAME, SeriesBatch
from spm.query.storage import AppStorage
from spm.wire import STALE_BITS

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_STREAM = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"


@heavy
def federate(call: Call) -> HttpResponseBase:
    """`federate`: the newest samples of `match[]`."""
    selectors = call.asked.selectors()
    if not selectors:
        raise BadQuery("no match[] parameter provided")
    now_ms, storage = call.now_ms, call.storage()
    found: dict[str, bytes] = {}
    bases = []
    for matchers in selectors:
        batch = storage.select(matchers, now_ms - call.budget.allowed.lookback_ms, now_ms, tick=call.budget.tick)
        call.budget.series(len(batch.labels), "match[]")
        call.budget.samples(len(batch.ts))
        bases.append(batch.basis)
        found |= _newest(batch)
    basis = joined(bases)
    if call.asked.flag("explain"):
        return explained_alone(call, storage, basis)
    body = b"".join(found[name] for name in sorted(found))
    return remarked(HttpResponse(body, content_type=_TEXT), basis)


def _newest(batch: SeriesBatch) -> dict[str, bytes]:
    """A line for each series that has not ended, by its text."""
    last = batch.offsets[1:] - 1
    going = batch.values[last].view(np.uint64) != STALE_BITS
    found = {}
    for row in np.flatnonzero(going).tolist():
        at = int(last[row])
        name = exposition.series_text(batch.labels[row])
        line = f"{name} {prometheus.number(float(batch.values[at]))} {int(batch.ts[at])}\n"
        found[name] = f"# TYPE {_typed(batch.labels[row][METRIC_NAME])} untyped\n{line}".encode()
    return found


def _typed(name: str) -> str:
    text = exposition.series_text({METRIC_NAME: name})
    return text.strip("{}")


@protobuf
def remote_read(call: Call, request: HttpRequest, held: ExitStack) -> HttpResponseBase:
    """`read`: the samples of some selectors."""
    storage, wanted = call.storage(), remote.asked(_unpacked(request)).until(call.now_ms + FUTURE_MS)
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
    packed = bytes(cramjam.snappy.compress_raw(remote.answered(batches)))
    response = HttpResponse(packed, content_type="application/x-protobuf", headers={"Content-Encoding": "snappy"})
    return remarked(response, joined(batch.basis for batch in batches))


def _frames(call: Call, storage: AppStorage, wanted: remote.Request) -> Iterator[bytes]:
    for number, query in enumerate(wanted.queries):
        parts = stretches.by_labels(storage, query.matchers, query.start_ms - 1, query.end_ms, call.budget)
        for batch in parts:
            yield from remote.frames(number, batch)


def _unpacked(request: HttpRequest) -> bytes:
    """The body; what says that it would become too large is not unpacked."""
    body = whole(request, "read request")
    try:
        if cramjam.snappy.decompress_raw_len(body) > READ_FORM_BYTES_MAX:
            raise BadQuery(f"a read request has at most {READ_FORM_BYTES_MAX} bytes when it is unpacked")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise BadQuery("the body is not compressed by snappy") from error
