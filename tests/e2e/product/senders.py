"""A client that never gives up: it sends each body under one message id until the server answers 204.

All ``acked`` bodies must be in the store, whatever process was killed in between.
"""

import http.client
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.servers.product import Served

_TRIES = 400


@dataclass(slots=True)
class Sender:
    """One keep-alive client of a server."""

    served: Served
    resent: int = 0
    acked: int = 0
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def send_all(self, bodies: Sequence[bytes], name: str = "body") -> None:
        """Send every body, in order; raises if one is refused permanently or never accepted."""
        for number, body in enumerate(bodies):
            self.send(body, f"{name}-{number}")

    def send(self, body: bytes, message_id: str) -> None:
        """Send one body until it is acknowledged."""
        for _ in range(_TRIES):
            status = self._try(body, message_id)
            if status == 204:
                self.acked += 1
                return
            assert status in (0, 429, 500, 502, 503), f"{message_id} was answered {status}"
            self.resent += 1
            time.sleep(0.1)
        raise AssertionError(f"{message_id} was not accepted in {_TRIES} tries")

    def _try(self, body: bytes, message_id: str) -> int:
        try:
            if self._connection is None:
                self._connection = self.served.connection()
            return self.served.push(self._connection, body, message_id)
        except (OSError, http.client.HTTPException):
            self._connection = None
            return 0
