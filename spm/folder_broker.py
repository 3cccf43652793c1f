"""The folder as a broker, without the races of kombu's own: a message is seen whole or not at all.

kombu's ``filesystem`` transport writes a message in place, so that a reader may take an empty or half-written file; the
error that follows ends the worker. Here a message is written beside the queue and renamed into it, and a file that is
damaged all the same (a full disk, an older version) is dropped with a line in the log: tasks carry no truth, and the
next tick makes good. ``install`` puts it in the place of ``filesystem://``.
"""

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
    """kombu's channel with messages that appear at once."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]
        """Put a message into a queue. Names sort by time, as kombu's do."""
        name = f"{_clock.now_ms():014d}_{random_u64():016x}.{queue}.msg"
        place = Path(self.data_folder_out) / name
        unseen = place.with_name(f".{name}.part")
        try:
            unseen.write_text(dumps(payload))  # type: ignore[no-untyped-call]
            unseen.replace(place)
        except OSError as error:
            raise ChannelError(f"cannot add {name} to the folder of messages: {error}") from error

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """The next message of a queue; ``Empty`` when there is none. A damaged one is dropped."""
        try:
            return super()._get(queue)  # type: ignore[no-untyped-call]
        except ValueError as error:
            _LOG.warning("dropped a damaged message of %s: %s", queue, error)
            raise Empty from error


class Transport(filesystem.Transport):
    """kombu's transport with that channel."""

    Channel = Channel


def install() -> None:
    """Let ``filesystem://`` mean this transport in this process."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
