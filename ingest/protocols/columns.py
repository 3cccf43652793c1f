"""Our own columnar message as a stranger sends it: its columns are taken, what only we may say in it is not.

App, stamp and message id of such a body are not looked at: whoever accepts it gives them. Series ids are computed again
from the canonical forms, whose names must keep the rules. Samples with times out of range are refused one by one. Enter
by ``parse``.
"""

import numpy as np

from ingest.protocols.common import naming
from ingest.protocols.common.times import TIME_EARLY, TIME_LATE
from spm.errors import BadMessage, CorruptBlock, LimitExceeded
from spm.limits import FUTURE_MS, MESSAGE_SAMPLES_MAX, MESSAGE_SERIES_BYTES_MAX
from spm.wire import Envelope, Parsed, Rejection, SeriesTable, canonical, parse_canonical

MAGIC = b"SPMe"


def is_envelope(body: bytes) -> bool:
    """Whether a body begins as one of our columnar messages."""
    return body.startswith(MAGIC)


def parse(body: bytes, *, now_ms: int, over_quota: bool = False) -> Parsed:
    """Returns all samples of an envelope.

    ``BadMessage``: it is damaged, or a series breaks the rules; ``LimitExceeded``: it holds more than one may. Nothing
    is cached here, so ``over_quota`` changes nothing.
    """
    try:
        sent = Envelope.from_bytes(body)
    except CorruptBlock as error:
        raise BadMessage(error.what, got=error.got, wanted=error.wanted) from error
    for what, got, most in (
        ("samples", len(sent), MESSAGE_SAMPLES_MAX),
        (
            "bytes of series names and tags",
            int((sent.series.ends - sent.series.starts).sum()),
            MESSAGE_SERIES_BYTES_MAX,
        ),
    ):
        if got > most:
            raise LimitExceeded(f"the message has too many {what}", got=got, wanted=f"at most {most}")
    forms = [_checked(sent.series.canonical(i)) for i in range(len(sent.series))]
    early, late = sent.ts < 1, sent.ts > now_ms + FUTURE_MS
    good = ~(early | late)
    refused = tuple(
        Rejection(int(wrong.argmax()) + 1, f"{int(wrong.sum())} of {len(sent)} samples: {reason}", "")
        for wrong, reason in ((early, TIME_EARLY), (late, TIME_LATE))
        if wrong.any()
    )
    return Parsed(
        series=SeriesTable.from_canonical(forms),
        series_index=sent.series_index[good],
        ts=sent.ts[good],
        values=sent.values[good],
        rejections=refused,
        rejected=int((~good).sum()),
        places=lambda rows: (np.flatnonzero(good)[rows] + 1).tolist(),
    )


def _checked(form: bytes) -> bytes:
    """The form, if it is the canonical one of names that keep the rules."""
    try:
        metric, labels = parse_canonical(form)
        pairs = [(name.encode(), value.encode()) for name, value in labels.items()]
        fault = naming.metric_fault(metric.encode()) or naming.tags_fault(pairs)
        if fault is None and canonical(metric, labels) != form:
            fault = "its form is not canonical"
    except CorruptBlock as error:
        fault = error.what
    if fault:
        raise BadMessage(f"a series cannot be taken: {fault}", got=form[:80])
    return form
