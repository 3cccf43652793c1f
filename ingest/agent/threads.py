"""The agent's threads: the main one looks on time; another pushes, so that a hanging server delays no look.

1. Wait for the next due time; look; wake the pusher.
2. The pusher sends until the spool is empty or the server says later; then it waits for the next look or the pause.
3. A third one tells the server how the agent does (``heart``), a fourth one looks for services (``discover``).
4. SIGTERM and SIGINT set ``stop``: the running push gets a moment to end, the spool is synced and closed. What waits,
   waits for the next start.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from ingest.agent import schedule
from ingest.agent.agent import Agent
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")


def run(
    agent: Agent,
    *,
    clock: Clock,
    stop: threading.Event,
    period_ms: Callable[[], int],
    host: str,
    others: Sequence[tuple[float, Callable[[], None]]] = (),
) -> None:
    """Look and push until ``stop`` is set; ``others``: what else to do, and how often, in seconds."""
    fresh = threading.Event()
    pusher = threading.Thread(target=_push_all, args=(agent, stop, fresh), name="push", daemon=True)
    pusher.start()
    for every_s, act in others:
        threading.Thread(target=_repeat, args=(act, every_s, stop), name=act.__name__, daemon=True).start()
    due_ms = 0
    while not stop.is_set():
        phase = schedule.phase_ms(host, period_ms())
        due_ms = schedule.next_due_ms(clock.now_ms(), last_due_ms=due_ms, period_ms=period_ms(), phase=phase)
        if not stop.wait((due_ms - clock.now_ms()) / 1_000):
            _look(agent)
            fresh.set()
    fresh.set()
    pusher.join(limits.AGENT_STOP_S)


def _look(agent: Agent) -> None:
    try:
        agent.look()
    except Exception:  # the next look is another chance
        log.exception("a look failed in an unforeseen way")


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


def _repeat(act: Callable[[], None], every_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            act()
        except Exception:  # likewise
            log.exception("%s failed in an unforeseen way", act.__name__)
        stop.wait(every_s)
