"""The agent's threads: the main thread collects on time; another one pushes, so that a hanging server delays nothing.

1. The main thread waits for the next due time, collects, and wakes the pusher.
2. The pusher sends until the spool is empty or a push fails; then it waits for the next collection or for the pause.
3. A third thread sends heartbeats, a fourth one discovers services.
4. SIGTERM and SIGINT set ``stop``: the current push gets a moment to end, then spool is synced and closed. Messages in
   the spool are sent after the next start.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from ingest.agent import schedule
from ingest.agent.agent import Agent
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")


def run_agent(
    agent: Agent,
    *,
    clock: Clock,
    stop: threading.Event,
    period_ms: Callable[[], int],
    host: str,
    periodic: Sequence[tuple[float, Callable[[], None]]] = (),
) -> None:
    """Collect and push until ``stop`` is set. ``periodic``: further tasks, each with its period in seconds."""
    fresh = threading.Event()
    pusher = threading.Thread(target=_push_all, args=(agent, stop, fresh), name="push", daemon=True)
    pusher.start()
    for every_s, act in periodic:
        threading.Thread(target=_repeat, args=(act, every_s, stop), name=act.__name__, daemon=True).start()
    due_ms = 0
    while not stop.is_set():
        phase = schedule.phase_ms(host, period_ms())
        due_ms = schedule.next_due_ms(clock.now_ms(), last_due_ms=due_ms, period_ms=period_ms(), phase=phase)
        if not stop.wait((due_ms - clock.now_ms()) / 1_000):
            _collect(agent)
            fresh.set()
    fresh.set()
    pusher.join(limits.AGENT_STOP_S)


def _collect(agent: Agent) -> None:
    try:
        agent.collect()
    except Exception:  # the next collection may succeed
        log.exception("collecting failed with an unexpected error")


def _push_all(agent: Agent, stop: threading.Event, fresh: threading.Event) -> None:
    while not stop.is_set():
        fresh.clear()
        try:
            wait_s = agent.push()
        except Exception:  # without the pusher nothing is sent: it must continue
            log.exception("a push failed with an unexpected error")
            wait_s = limits.AGENT_BACKOFF_MAX_S
        if wait_s is None:
            fresh.wait()
        elif wait_s:
            stop.wait(wait_s)


def _repeat(act: Callable[[], None], every_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            act()
        except Exception:  # the next run may succeed
            log.exception("%s failed with an unexpected error", act.__name__)
        stop.wait(every_s)
