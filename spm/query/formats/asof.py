"""The time of an as-of question, as HTTP parameters write it. Pure."""

from spm.errors import BadQuery
from spm.query.formats.prometheus import instant_ms
from spm.query.request.provenance import moment


def parsed(text: str | None, now_ms: int) -> int | None:
    """Milliseconds of ``asof=``; ``None`` where it is not given. Raises ``BadQuery``, also for a time to come."""
    if not text:
        return None
    try:
        asof_ms = instant_ms(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "asof": {error}') from error
    if asof_ms > now_ms:
        raise BadQuery(f'invalid parameter "asof": {moment(asof_ms)} is in the future')
    return asof_ms
