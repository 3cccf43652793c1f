"""What a client of the web server may take, in seconds, bytes and connections, and when its time is over.

Everything here is a value or a pure function; the numbers stand in ``spm.limits`` (``WEB_…``). Enter by ``HttpBounds``
and ``pace_due``.
"""

import math
from dataclasses import dataclass

from spm import limits

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """The bounds of one process; the defaults are those of ``spm.limits``, where each has its reason."""

    head_s: float = limits.WEB_HEAD_S
    silent_s: float = limits.WEB_SILENT_S
    idle_s: float = limits.WEB_IDLE_S
    body_stall_s: float = limits.WEB_BODY_STALL_S
    body_grace_s: float = limits.WEB_BODY_GRACE_S
    body_bytes_per_s_min: float = limits.WEB_BODY_BYTES_PER_S_MIN
    answer_stall_s: float = limits.WEB_STALL_S
    answer_grace_s: float = limits.WEB_ANSWER_GRACE_S
    answer_bytes_per_s_min: float = limits.WEB_ANSWER_BYTES_PER_S_MIN
    unsent_bytes_max: int = limits.WEB_UNSENT_BYTES_MAX
    head_bytes_max: int = limits.WEB_HEAD_BYTES_MAX
    request_line_bytes_max: int = limits.WEB_REQUEST_LINE_BYTES_MAX
    headers_max: int = limits.WEB_HEADERS_MAX
    pipelined_bytes_max: int = limits.WEB_PIPELINED_BYTES_MAX
    chunk_overhead_max: int = limits.WEB_CHUNK_OVERHEAD_MAX
    connections_max: int = limits.WEB_CONNECTIONS_MAX
    address_connections_max: int = limits.WEB_ADDRESS_CONNECTIONS_MAX
    linger_s: float = limits.WEB_LINGER_S
    linger_stall_s: float = limits.WEB_LINGER_STALL_S
    linger_bytes_max: int = limits.WEB_LINGER_BYTES_MAX
    lingering_max: int = limits.WEB_LINGERING_MAX
    sweep_s: float = 1.0  # between two looks at connections whose time may be over


def pace_due(
    begun: float, moved: float, byte_count: int, *, stall_s: float, grace_s: float, bytes_per_s_min: float
) -> float:
    """Returns when a transfer is too slow unless more bytes come.

    It began at ``begun`` and had ``byte_count`` bytes at ``moved``, both in seconds of one clock. It must not stand
    still for ``stall_s``, and after ``grace_s`` its average must not be below ``bytes_per_s_min``.
    """
    return min(moved + stall_s, begun + max(grace_s, byte_count / bytes_per_s_min))
