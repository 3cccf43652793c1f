"""Celery's filesystem broker without the races of kombu's own: a file appears complete or not at all.

kombu's ``filesystem`` transport writes messages and tables of bindings in place, so a reader may meet an empty or
half-written file. The error that follows ends the worker, and a process killed at the wrong moment would leave a table
behind that ends every worker from then on. Here a file is written beside its place and renamed into it. A file that is
damaged all the same (a full disk, an older version) is skipped with a line in the log: tasks carry no data, the next
tick repeats them, and a process that starts binds its queues anew. ``install`` replaces ``filesystem://`` by this
transport.
"""

import fcntl
import logging
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps

from spm.clock import SystemClock, random_u64

_LOG = logging.getLogger(__name__)
_clock = SystemClock()


class Channel(filesystem.Channel):
    """kombu's channel whose messages and tables appear at once."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]
        """Puts a message into a queue. Names sort by time, as kombu's do."""
        name = f"{_clock.now_ms():014d}_{random_u64():016x}.{queue}.msg"
        _write_atomically(Path(self.data_folder_out) / name, payload)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """Returns the next message of a queue; raises ``Empty`` when there is none. A damaged message is dropped."""
        try:
            return super()._get(queue)  # type: ignore[no-untyped-call]
        except ValueError as error:
            _LOG.warning("dropped a damaged message of %s: %s", queue, error)
            raise Empty from error

    def get_table(self, exchange: str) -> list[Any]:
        """Returns the bindings of an exchange; an empty list when its table is damaged."""
        try:
            return list(super().get_table(exchange))  # type: ignore[no-untyped-call]
        except (ValueError, TypeError) as error:
            _LOG.warning("left out the damaged table of %s: %s", exchange, error)
            return []

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        """Binds a queue to an exchange. A file lock makes processes take turns; the system frees a dead one's lock."""
        place = Path(self._exchange_file(exchange))  # type: ignore[no-untyped-call]
        place.parent.mkdir(exist_ok=True)
        bound = [routing_key or "", pattern or "", queue or ""]
        with place.with_name(f".{place.name}.turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            table = [list(each) for each in self.get_table(exchange)]
            if bound not in table:
                _write_atomically(place, [bound, *table])


def _write_atomically(place: Path, content: Any) -> None:
    """Writes a file of JSON and renames it into place, so that no reader sees a part of it."""
    draft = place.with_name(f".{place.name}.part")
    try:
        draft.write_text(dumps(content))  # type: ignore[no-untyped-call]
        draft.replace(place)
    except OSError as error:
        raise ChannelError(f"cannot write {place.name} into the folder of messages: {error}") from error


class Transport(filesystem.Transport):
    """kombu's transport with that channel."""

    Channel = Channel


def install() -> None:
    """Makes ``filesystem://`` mean this transport in this process."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
