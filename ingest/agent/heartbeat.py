"""Heartbeats: the agent reports its state to the server every ``AGENT_HEARTBEAT_S``; the answer may hold settings.

    POST /api/v1/agents             once at the start       → what the server knows, and settings
    POST /api/v1/agents/heartbeat   from then on            → settings, if their etag differs from the agent's

A heartbeat that fails is not repeated, because the next one reports the complete state. A server without this interface
(404, 405) gets a heartbeat rarely. Heartbeats have a thread of their own, so they delay neither collecting nor pushing.
Enter by ``HeartbeatSender``.
"""

import json
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from ingest.agent.agent import Agent
from ingest.agent.collect.host.own_metrics import Counters
from ingest.agent.server.connector import ServerConnector
from ingest.agent.spool.spool import Spool
from ingest.agent.version import USER_AGENT, VERSION
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")
REGISTER, HEARTBEAT, ABOUT = "/api/v1/agents", "/api/v1/agents/heartbeat", "/api/v1/agents/version"
_SKIPPED_BEATS = 20  # heartbeats skipped for a server without the interface: ten minutes


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer. A status of 0 means that there was none; ``problem`` says why."""

    status: int
    content: Mapping[str, Any]
    problem: str = ""


def call_server(connector: ServerConnector, token: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
    """Send one request of the agents' interface: a GET, or a POST with a JSON body."""
    headers = {**connector.headers(), "Authorization": f"Bearer {token}", "User-Agent": USER_AGENT}
    headers |= {"Accept": "application/json", "Content-Type": "application/json"}
    try:
        link = connector.connect()
        try:
            data = None if body is None else json.dumps(body).encode()
            link.request("GET" if body is None else "POST", connector.path(path), data, headers)
            response = link.getresponse()
            raw = response.read(limits.AGENT_ANSWER_BYTES_MAX)
        finally:
            link.close()
        content = json.loads(raw) if raw.lstrip().startswith(b"{") else {}
        return Answer(response.status, content if isinstance(content, dict) else {}, f"HTTP {response.status}")
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        return Answer(0, {}, f"{type(error).__name__}: {error}")


class HeartbeatSender:
    """Sends the heartbeats of one agent. ``etag`` and ``refused`` are those of the settings that it applied."""

    def __init__(
        self,
        connector: ServerConnector,
        *,
        token: str,
        agent: Agent,
        spool: Spool,
        counters: Counters,
        clock: Clock,
        host: str,
        apply_settings: Callable[[str, Any], None],
    ) -> None:
        self._connector, self._token, self._agent, self._spool = connector, token, agent, spool
        self._counters, self._clock, self._host, self._apply_settings = counters, clock, host, apply_settings
        self._started_ms = clock.now_ms()
        self._registered = False
        self._beats_to_skip = 0
        self._last_problem = ""
        self.etag = ""
        self.refused: Mapping[str, str] = {}
        self.period_ms = 0
        self.labels: Mapping[str, str] = {}

    def send(self) -> None:
        """Send one heartbeat, and apply the settings of the answer."""
        if self._beats_to_skip:
            self._beats_to_skip -= 1
            return
        answer = call_server(self._connector, self._token, HEARTBEAT if self._registered else REGISTER, self._report())
        if answer.status in (200, 201):
            self._registered = True
            if "settings" in answer.content and answer.content.get("etag") != self.etag:
                self._apply_settings(str(answer.content.get("etag", "")), answer.content["settings"])
        elif answer.status == 404 and self._registered:
            self._registered = False  # the agent was deleted on the server: register again
        elif answer.status in (404, 405):
            self._beats_to_skip = _SKIPPED_BEATS
        self._log_change("" if answer.status in (200, 201) else answer.problem)

    def _log_change(self, problem: str) -> None:
        if problem and not self._last_problem:
            log.warning("the server accepts no heartbeat: %s", problem)
        if self._last_problem and not problem:
            log.info("the server accepts heartbeats again")
        self._last_problem = problem

    def _report(self) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        health = self._agent.collectors.health()
        return {
            "name": self._host,
            "version": VERSION,
            "platform": platform.platform()[:200],
            "period_ms": self.period_ms,
            "started_ms": self._started_ms,
            "now_ms": now_ms,
            "spool": self._spool.name,
            "sequence": self._counters.sequence,
            "spooled": self._spool.depth(),
            "oldest_ms": self._agent.failing_ms(now_ms),
            "dropped_messages": self._spool.dropped[0],
            "dropped_samples": self._spool.dropped[1],
            "tags": {key: value for key, value in self.labels.items() if key != "host"},
            "collectors": {name[:100]: each.problem[:200] or "ok" for name, each in sorted(health.items())},
            "etag": self.etag,
            "refused": dict(self.refused),
        }
