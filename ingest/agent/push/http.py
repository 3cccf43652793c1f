"""Pushes over HTTP: ``POST /write?precision=ms`` on a connection that is kept.

A server closes idle connections when it likes, so a kept one that fails is opened anew once, at once: the message id
makes that safe. Refused for good are only answers about the body itself; a wrong token or address can be put right on
either side, so those messages wait in the spool.
"""

import socket
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from ingest.agent.push.base import Outcome, Verdict
from ingest.agent.records import Message
from spm import limits
from spm.errors import Refused

_ABOUT_THE_BODY = frozenset({400, 413, 415, 422})


class HttpPush:
    """One server, one connection, one message at a time."""

    def __init__(self, url: str, *, token: str, source: str) -> None:
        self._url = _checked(url)
        self._path = f"{self._url.path.rstrip('/')}/write?precision=ms"
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Encoding": "gzip",
            "User-Agent": "spm-agent",
            "X-SPM-Source": source,
        }
        self._connection: HTTPConnection | None = None

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
            kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
            fresh = kind(self._url.hostname or "", self._url.port, timeout=limits.AGENT_TIMEOUT_S)
            fresh.connect()
            fresh.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = fresh
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


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        port_is_right = False
    if not parts.hostname or not port_is_right:
        raise Refused("not an address", got=url, wanted="http[s]://host[:port][/path]")
    return parts
