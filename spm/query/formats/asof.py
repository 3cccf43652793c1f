"""Reads the HTTP parameter `asof`, the time of an as-of query. Pure."""

from spm.errors import BadQuery
from spm.query.formats.prometheus import instant_ms
from spm.query.request.provenance import moment


def parse_asof(text: str | None, now_ms: int) -> int | None:
    """Parse ``asof=`` to ms, ``None`` if it is missing; raises ``BadQuery``, also for a time in the future."""
    if not text:
        return None
    try:
        asof_ms = instant_ms(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "asof": {error}') from error
    if asof_ms > now_ms:
        raise BadQuery(f'invalid parameter "asof": {moment(asof_ms)} is in the future')
    return asof_ms
