"""Pushes over HTTP: ``POST /write?precision=ms`` on a connection that is kept.

A server closes idle connections when it likes, so a kept one that fails is opened anew once, at once: the message id
makes that safe. Refused for good are only answers about the body itself; a wrong token or address can be put right on
either side, so those messages wait in the spool.
"""

from http.client import HTTPConnection, HTTPException, HTTPResponse

from ingest.agent.server.push.base import Outcome, Verdict
from ingest.agent.server.web import Web
from ingest.agent.spool.records import Message
from ingest.agent.version import USER_AGENT, VERSION
from spm import limits

_ABOUT_THE_BODY = frozenset({400, 413, 415, 422})


class HttpPush:
    """One server, one connection, one message at a time."""

    def __init__(self, web: Web, *, token: str, source: str, period_ms: int = 0) -> None:
        self._web = web
        self._path = web.path("/write?precision=ms")
        self._headers = {
            **web.headers(),
            "Authorization": f"Bearer {token}",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Encoding": "gzip",
            "User-Agent": USER_AGENT,
            "X-SPM-Source": source,
        }
        self.announce(period_ms)
        self._connection: HTTPConnection | None = None

    def call_itself(self, name: str) -> None:
        """Another name than the agent's: the server tells senders apart by it."""
        self._headers["User-Agent"] = f"{name}/{VERSION}"

    def announce(self, period_ms: int) -> None:
        """Tell the server with each message how often there is one."""
        if period_ms:
            self._headers["X-SPM-Period"] = f"{period_ms / 1_000:g}"

    def send(self, message: Message) -> Outcome:
        kept = self._connection is not None
        try:
            return self._exchange(message)
        except (OSError, HTTPException) as error:
            self.close()
            if not kept:
                return Outcome(Verdict.LATER, f"{type(error).__name__}: {error}")
        return self.send(message)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, message: Message) -> Outcome:
        if self._connection is None:
            self._connection = self._web.connect()
        headers = {**self._headers, "X-Message-Id": message.message_id.hex()}
        self._connection.request("POST", self._path, message.body, headers)
        response = self._connection.getresponse()
        answer = response.read(limits.AGENT_ANSWER_BYTES_MAX)
        if not response.isclosed():  # more than anyone reads: this connection is of no further use
            self.close()
        return judge(response.status, answer, _retry_after_s(response))


def judge(status: int, answer: bytes, retry_after_s: float | None) -> Outcome:
    """What an answer means for the message."""
    if 200 <= status < 300:
        return Outcome(Verdict.TAKEN)
    reason = f"HTTP {status}: {' '.join(answer.decode(errors='replace').split())[:500]}"
    verdict = Verdict.REFUSED if status in _ABOUT_THE_BODY else Verdict.LATER
    return Outcome(verdict, reason, retry_after_s)


def _retry_after_s(response: HTTPResponse) -> float | None:
    """Seconds of the header ``Retry-After``; its other form, a date, would trust two clocks and is passed over."""
    text = (response.getheader("Retry-After") or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None
