"""The folder as a broker, without the races of kombu's own: a file is seen whole or not at all.

kombu's ``filesystem`` transport writes messages and tables of bindings in place, so that a reader may meet an empty or
half-written file; the error that follows ends the worker, and a process killed at the wrong moment would leave a table
behind that ends every worker from then on. Here a file is written beside its place and renamed into it. One that is
damaged all the same (a full disk, an older version) is left out with a line in the log: tasks carry no truth, the next
tick makes good, and who begins binds its queues anew. ``install`` puts it in the place of ``filesystem://``.
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
    """kombu's channel with messages and tables that appear at once."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]
        """Put a message into a queue. Names sort by time, as kombu's do."""
        name = f"{_clock.now_ms():014d}_{random_u64():016x}.{queue}.msg"
        _appear(Path(self.data_folder_out) / name, payload)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """The next message of a queue; ``Empty`` when there is none. A damaged one is dropped."""
        try:
            return super()._get(queue)  # type: ignore[no-untyped-call]
        except ValueError as error:
            _LOG.warning("dropped a damaged message of %s: %s", queue, error)
            raise Empty from error

    def get_table(self, exchange: str) -> list[Any]:
        """What is bound to an exchange; nothing when its table is damaged."""
        try:
            return list(super().get_table(exchange))  # type: ignore[no-untyped-call]
        except (ValueError, TypeError) as error:
            _LOG.warning("left out the damaged table of %s: %s", exchange, error)
            return []

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        """Bind a queue to an exchange. Processes do so one after the other; the system ends the turn of a dead one."""
        place = Path(self._exchange_file(exchange))  # type: ignore[no-untyped-call]
        place.parent.mkdir(exist_ok=True)
        bound = [routing_key or "", pattern or "", queue or ""]
        with place.with_name(f".{place.name}.turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            table = [list(each) for each in self.get_table(exchange)]
            if bound not in table:
                _appear(place, [bound, *table])


def _appear(place: Path, what: Any) -> None:
    """Write a file of JSON; nobody sees it before it is whole."""
    unseen = place.with_name(f".{place.name}.part")
    try:
        unseen.write_text(dumps(what))  # type: ignore[no-untyped-call]
        unseen.replace(place)
    except OSError as error:
        raise ChannelError(f"cannot write {place.name} into the folder of messages: {error}") from error


class Transport(filesystem.Transport):
    """kombu's transport with that channel."""

    Channel = Channel


def install() -> None:
    """Let ``filesystem://`` mean this transport in this process."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
