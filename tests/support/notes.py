"""Notes about messages for tests: written at once, as if messages had come, and without a thread.

``write_at_once`` takes the place of the process's note writer's ``wake``: a test that notes something finds it in the
database right after. Tests of the writer itself have their own one, with its thread.
"""

import asyncio
import os
import threading
from collections.abc import Sequence

from ingest.accept import activity, arrivals, rejections
from ingest.accept.arrivals import WayArrivals
from ingest.accept.rejections import RejectionNote
from spm.accounts import sources
from spm.accounts.note_writer import process_writer
from spm.wire import Rejection


def write_at_once() -> None:
    """Write all notes, unless this is an event loop, which may not use the database: there they wait."""
    if not _is_event_loop():
        process_writer.flush()


def forget_notes() -> None:
    """Forget what this process noted, and what waits to be written."""
    process_writer.reset()
    activity.process_recorder.forget()


def see_source(app_id: int, name: str, now_ms: int, *, period_ms: int = 0) -> None:
    """As if a message of the source came now, with this announced period."""
    sources.write_seen({app_id: {name: ((now_ms, period_ms),)}})


def see_arrival(app_id: int, way: str, source: str, now_ms: int) -> None:
    """As if a message of the source came now by this way."""
    arrivals.write_arrivals({app_id: {way: WayArrivals(now_ms, now_ms, source)}})


def see_rejections(app_id: int, source: str, lines: Sequence[Rejection], now_ms: int, way: str = "") -> None:
    """As if these lines of a message of the source were rejected now."""
    notes = {number: RejectionNote(now_ms, source, way, line) for number, line in enumerate(lines)}
    rejections.write_rejections({app_id: notes})


def _is_event_loop() -> bool:
    """Whether an event loop calls; the loop that Playwright leaves in the main thread of browser tests calls nobody."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    is_of_browser = "DJANGO_ALLOW_ASYNC_UNSAFE" in os.environ and threading.current_thread() is threading.main_thread()
    return not is_of_browser
