"""Reads SPM's own columnar message (``spm.wire.Envelope``) from a client that is not trusted.

Only its columns count. App, stamp and message id of such a body are ignored; the acceptor sets them. Series ids are
computed from the canonical forms, whose names are checked. Samples with times out of range are rejected one by one.
Enter by ``parse``.
"""

import numpy as np

from ingest.protocols.common import naming
from ingest.protocols.common.times import TIME_BEFORE_1970, TIME_TOO_FAR_AHEAD
from spm.errors import BadMessage, CorruptBlock, LimitExceeded
from spm.limits import FUTURE_MS, MESSAGE_SAMPLES_MAX, MESSAGE_SERIES_BYTES_MAX
from spm.wire import Envelope, Parsed, Rejection, SeriesTable, canonical, parse_canonical

MAGIC = b"SPMe"


def is_envelope(body: bytes) -> bool:
    """Whether a body begins as a columnar message."""
    return body.startswith(MAGIC)


def parse(body: bytes, *, now_ms: int, over_quota: bool = False) -> Parsed:
    """Returns all samples of an envelope.

    ``BadMessage``: it is damaged, or a series is not valid; ``LimitExceeded``: it holds more than one message may.
    Nothing is cached here, so ``over_quota`` has no effect.
    """
    try:
        envelope = Envelope.from_bytes(body)
    except CorruptBlock as error:
        raise BadMessage(error.what, got=error.got, wanted=error.wanted) from error
    for what, got, most in (
        ("samples", len(envelope), MESSAGE_SAMPLES_MAX),
        (
            "bytes of series names and labels",
            int((envelope.series.ends - envelope.series.starts).sum()),
            MESSAGE_SERIES_BYTES_MAX,
        ),
    ):
        if got > most:
            raise LimitExceeded(f"the message has too many {what}", got=got, wanted=f"at most {most}")
    forms = [_check_form(envelope.series.canonical(i)) for i in range(len(envelope.series))]
    early, far_ahead = envelope.ts < 1, envelope.ts > now_ms + FUTURE_MS
    good = ~(early | far_ahead)
    rejections = tuple(
        Rejection(int(wrong.argmax()) + 1, f"{int(wrong.sum())} of {len(envelope)} samples: {reason}", "")
        for wrong, reason in ((early, TIME_BEFORE_1970), (far_ahead, TIME_TOO_FAR_AHEAD))
        if wrong.any()
    )
    return Parsed(
        series=SeriesTable.from_canonical(forms),
        series_index=envelope.series_index[good],
        ts=envelope.ts[good],
        values=envelope.values[good],
        rejections=rejections,
        rejected=int((~good).sum()),
        places=lambda rows: (np.flatnonzero(good)[rows] + 1).tolist(),
    )


def _check_form(form: bytes) -> bytes:
    """Returns the form; ``BadMessage``: it is not canonical, or a name in it is not valid."""
    try:
        metric, labels = parse_canonical(form)
        pairs = [(name.encode(), value.encode()) for name, value in labels.items()]
        fault = naming.metric_fault(metric.encode()) or naming.labels_fault(pairs)
        if fault is None and canonical(metric, labels) != form:
            fault = "its form is not canonical"
    except CorruptBlock as error:
        fault = error.what
    if fault:
        raise BadMessage(f"a series is not valid: {fault}", got=form[:80])
    return form
