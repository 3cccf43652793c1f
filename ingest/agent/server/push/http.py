"""Pushes over HTTP: ``POST /write?precision=ms`` on a persistent connection.

A server may close an idle connection at any time, so a failed request on an open connection is repeated once on a new
one; the message id makes that safe. Only answers about the body itself reject a message permanently. A wrong token or
address can be corrected on either side, so such messages wait in the spool.
"""

from http.client import HTTPConnection, HTTPException, HTTPResponse

from ingest.agent.server.connector import ServerConnector
from ingest.agent.server.push.base import Outcome, Verdict
from ingest.agent.spool.records import Message
from ingest.agent.version import USER_AGENT, VERSION
from spm import limits

_ABOUT_THE_BODY = frozenset({400, 413, 415, 422})


class HttpPush:
    """Sends one message at a time on one connection."""

    def __init__(self, connector: ServerConnector, *, token: str, source: str, period_ms: int = 0) -> None:
        self._connector = connector
        self._path = connector.path("/write?precision=ms")
        self._headers = {
            **connector.headers(),
            "Authorization": f"Bearer {token}",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Encoding": "gzip",
            "User-Agent": USER_AGENT,
            "X-SPM-Source": source,
        }
        self.set_period(period_ms)
        self._connection: HTTPConnection | None = None

    def set_sender(self, name: str) -> None:
        """Send this name as user agent; the server shows it as the kind of sender."""
        self._headers["User-Agent"] = f"{name}/{VERSION}"

    def set_period(self, period_ms: int) -> None:
        """Send this period in a header of each message."""
        if period_ms:
            self._headers["X-SPM-Period"] = f"{period_ms / 1_000:g}"

    def send(self, message: Message) -> Outcome:
        was_open = self._connection is not None
        try:
            return self._exchange(message)
        except (OSError, HTTPException) as error:
            self.close()
            if not was_open:
                return Outcome(Verdict.RETRY, f"{type(error).__name__}: {error}")
        return self.send(message)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, message: Message) -> Outcome:
        if self._connection is None:
            self._connection = self._connector.connect()
        headers = {**self._headers, "X-Message-Id": message.message_id.hex()}
        self._connection.request("POST", self._path, message.body, headers)
        response = self._connection.getresponse()
        answer = response.read(limits.AGENT_ANSWER_BYTES_MAX)
        if not response.isclosed():  # the answer is longer than the limit: the connection cannot be used again
            self.close()
        return outcome_of(response.status, answer, _retry_after_s(response))


def outcome_of(status: int, answer: bytes, retry_after_s: float | None) -> Outcome:
    """Returns the outcome of a message with this answer."""
    if 200 <= status < 300:
        return Outcome(Verdict.ACCEPTED)
    reason = f"HTTP {status}: {' '.join(answer.decode(errors='replace').split())[:500]}"
    verdict = Verdict.REJECTED if status in _ABOUT_THE_BODY else Verdict.RETRY
    return Outcome(verdict, reason, retry_after_s)


def _retry_after_s(response: HTTPResponse) -> float | None:
    """Returns the seconds of the header ``Retry-After``. Its other form, a date, would need equal clocks."""
    text = (response.getheader("Retry-After") or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None
