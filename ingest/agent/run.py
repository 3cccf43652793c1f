"""The agent's two threads: the main one looks on time, the other pushes, so that a hanging server delays no look.

1. Wait for the next due time; look; wake the pusher.
2. The pusher sends until the spool is empty or the server says later; then it waits for the next look or the pause.
3. SIGTERM and SIGINT set ``stop``: the running push gets a moment to end, the spool is synced and closed. What waits,
   waits for the next start.
"""

import logging
import threading

from ingest.agent import schedule
from ingest.agent.agent import Agent
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")


def run(agent: Agent, *, clock: Clock, stop: threading.Event, period_ms: int, host: str) -> None:
    """Look and push until ``stop`` is set."""
    fresh = threading.Event()
    pusher = threading.Thread(target=_push_all, args=(agent, stop, fresh), name="push", daemon=True)
    pusher.start()
    phase, due_ms = schedule.phase_ms(host, period_ms), 0
    while not stop.is_set():
        due_ms = schedule.next_due_ms(clock.now_ms(), last_due_ms=due_ms, period_ms=period_ms, phase=phase)
        if not stop.wait((due_ms - clock.now_ms()) / 1_000):
            agent.look()
            fresh.set()
    fresh.set()
    pusher.join(limits.AGENT_STOP_S)


def _push_all(agent: Agent, stop: threading.Event, fresh: threading.Event) -> None:
    while not stop.is_set():
        fresh.clear()
        try:
            wait_s = agent.push()
        except Exception:  # the pusher is the agent's only way out: it goes on
            log.exception("a push failed in an unforeseen way")
            wait_s = limits.AGENT_BACKOFF_MAX_S
        if wait_s is None:
            fresh.wait()
        elif wait_s:
            stop.wait(wait_s)
