"""gunicorn's worker with threads, which stays with a connection for a moment while its requests come one upon another.

gunicorn's own gives every request to another thread and every connection back to the thread that waits for all of them:
for a small request that costs as much as the answer. Here a thread whose connection has just asked again within
``limits.WEB_ATTENDS_MS`` of an answer waits as long for the next request. A connection that asks now and then never
holds a thread, and at most half of the threads stay with one: the others are there for whoever comes.

While no other connection has a thread, it looks again and again for the first ``limits.WEB_SPINS_MS`` instead of
sleeping: a processor that slept, if only so long, has lost its caches to others, and the next request takes it longer
than the looking did.

Named in the command line of the web server (``--worker-class spm.attentive.Attentive``), so nothing of the site is
loaded with it.
"""

import select
import time
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from spm.limits import WEB_ATTENDS_MS, WEB_SPINS_MS


class Attentive(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves connections by threads; does what its parent does, but for the wait between two requests."""

    def handle(self, conn: Any) -> Any:
        """Answer a request, and those that follow at once; whether the connection may be used again."""
        brisk = self._asked_again_at_once(conn)
        while True:
            kept = super().handle(conn)
            conn.answered = time.monotonic()
            if kept is not True or not brisk or not self._may_stay(conn) or not self._asks_again(conn):
                return kept

    def _asked_again_at_once(self, conn: Any) -> bool:
        return time.monotonic() - getattr(conn, "answered", 0.0) < WEB_ATTENDS_MS / 1000

    def _may_stay(self, conn: Any) -> bool:
        """Not when more than half of the threads have a connection or soon will.

        What was read of the next request already, or decrypted, does not show on the socket: such a connection goes
        back as well.
        """
        if self.cfg.is_ssl or self._in_hand() > self.cfg.threads // 2:
            return False
        return not conn.parser.unreader.buf.getvalue()

    def _asks_again(self, conn: Any) -> bool:
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        until = time.monotonic() + WEB_SPINS_MS / 1000
        while self._in_hand() <= 1 and time.monotonic() < until:
            if waiting.poll(0):
                return True
        return bool(waiting.poll(WEB_ATTENDS_MS))

    def _in_hand(self) -> int:
        """How many connections have a thread or wait for one."""
        return int(self.nr_conns - len(self.keepalived_conns) - len(self.pending_conns))
