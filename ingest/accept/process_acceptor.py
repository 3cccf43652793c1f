"""The one acceptor of this process, opened with its first message and closed at its exit.

Enter by ``process_acceptor``. ``accept_again`` sends an old message through it, for the replay of dead letters.
"""

import atexit
import threading
from functools import lru_cache

from django.conf import settings

from ingest.accept.acceptor import Acceptor
from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import Sender
from ingest.transport import open_transport
from spm.clock import SystemClock
from spm.errors import Refused
from spm.store.backends import open_backend
from spm.wire import Envelope, Parsed

_opening = threading.Lock()


def process_acceptor() -> Acceptor:
    """Return this process' acceptor."""
    with _opening:
        return _open()


def close_process_acceptor() -> None:
    """Close this process' acceptor, if one is open; the next message opens another."""
    with _opening:
        acceptor = _open() if _open.cache_info().currsize else None
        _open.cache_clear()
    if acceptor is not None:
        atexit.unregister(acceptor.close)
        acceptor.close()


def accept_again(envelope: Envelope) -> None:
    """Accept a message that was accepted before and became a dead letter: a new stamp under its old id.

    Raises ``Refused`` when only a part of it was accepted, so that nobody counts it as settled. That part may be
    accepted again later.
    """
    message = Parsed(envelope.series, envelope.series_index, envelope.ts, envelope.values)
    sender = Sender(envelope.app, envelope.source)
    accepted = process_acceptor().accept(message, sender=sender, message_id=envelope.message_id)
    if rejected := len(message.ts) - len(accepted.ts):
        raise Refused(f"{rejected:,} of its {len(message.ts):,} samples were rejected: {accepted.rejections[0].reason}")


@lru_cache(maxsize=1)
def _open() -> Acceptor:
    clock = SystemClock()
    store = open_backend(settings.SPM_STORE_URL)
    announcer = StampAnnouncer(store, clock)
    transport = open_transport(settings.SPM_TRANSPORT, store_url=settings.SPM_STORE_URL, amqp_url=settings.SPM_AMQP_URL)
    acceptor = Acceptor(announcer, transport, clock, Admission(store, clock))
    atexit.register(acceptor.close)
    return acceptor
