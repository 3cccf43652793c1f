"""The rows of the comparison that are answered by yes or no: each is an experiment with one running store.

A claim gets a store and hosts of its own among those of one small fleet, whose reports end a quarter of an hour ago. It
answers whether the store did it, or a word: ``no such call``, where a store's interface does not have it.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from spm.limits import HOUR_MS
from tests.bench import bodies
from tests.bench.comparison.stores import Store, fetch, influxql, manage
from tests.servers.processes import wait_until
from tests.servers.product import Served, processes
from tests.support.fleet import STEP_MS, Fleet

STEPS = 60  # ten minutes
_SEEN_S, _REST_S = 6, 1.5  # until a sample is in answers; and until a copy of it would be
_MIDDLE = (20, 40)  # the steps that are taken out
_NO_CALL = "no such call"
Outcome = bool | str


@dataclass(slots=True)
class Trial:
    """One store that runs in a folder of its own, and the fleet that it gets."""

    store: Store
    served: Served
    fleet: Fleet

    def send(self, fleet: Fleet, host: int) -> bool:
        """Send one host's samples in one request; whether they were taken."""
        return self._send(fleet, host) in (200, 204)

    def _send(self, fleet: Fleet, host: int) -> int:
        encode, path = (
            (bodies.lines, self.store.lines)
            if self.store.lines
            else (
                bodies.remote_write,
                self.store.remote_write,
            )
        )
        body = encode(fleet, range(fleet.steps), range(host, host + 1))
        return self.store.push(self.served, path, [body])[0]

    def count(self, host: int, first_ms: int = 0, last_ms: int = 0, **more: object) -> int:
        """Return how many samples of the host's first field lie after the first moment, up to the last one."""
        last_ms = last_ms or int(self.fleet.ts[-1, 0]) + 1
        first_ms = first_ms or last_ms - 12 * HOUR_MS
        if self.store.name == "InfluxDB":
            where = f"hostname = 'host_{host}' AND time > {first_ms}ms AND time <= {last_ms}ms"
            series = influxql(self.served, f"SELECT count(usage_user) AS n FROM cpu WHERE {where}")
            return int(series[0]["values"][0][1]) if series else 0  # type: ignore[index]
        window = f'count_over_time(cpu_usage_user{{hostname="host_{host}"}}[{last_ms - first_ms}ms])'
        connection = self.served.connection()
        data = self.served.ask(connection, "query", query=f"sum({window})", time=last_ms / 1000, **more)
        result: list[dict[str, tuple[float, str]]] = data["result"]  # type: ignore[assignment]
        return int(float(result[0]["value"][1])) if result else 0

    def holds(self, host: int, count: int, first_ms: int = 0, last_ms: int = 0) -> bool:
        """Whether so many samples are in answers soon, and still so a moment later."""
        if not wait_until(lambda: self.count(host, first_ms, last_ms) == count, _SEEN_S):
            return False
        time.sleep(_REST_S)
        return self.count(host, first_ms, last_ms) == count


def once(trial: Trial, host: int) -> Outcome:
    """Send twice, as a client does that missed the answer, whatever the second answer is: every sample counts once."""
    taken = trial.send(trial.fleet, host)
    trial.send(trial.fleet, host)
    return taken and trial.holds(host, STEPS)


def late(trial: Trial, host: int) -> Outcome:
    """Send what is three hours older than what is there: it is in the answers."""
    older = replace(trial.fleet, ts=trial.fleet.ts - 3 * HOUR_MS)
    taken = trial.send(trial.fleet, host) and trial.send(older, host)
    return taken and trial.holds(host, 2 * STEPS)


def rollups(trial: Trial, host: int) -> Outcome:
    """Roll up, send a late sample, roll up: the stored maximum is the late one."""
    if trial.store.name == "InfluxDB":
        return _continuous_query(trial)
    if trial.store.name != "SPM":
        return "stores no rollups"
    early = replace(trial.fleet, ts=trial.fleet.ts - 6 * HOUR_MS)
    highest = replace(early, ts=early.ts + STEP_MS // 2, values=early.values * 0 + 100)
    for fleet in (early, highest):
        if not trial.send(fleet, host):
            return False
        manage(trial.served, "roll", "--local")
    expression = f'max_over_time(cpu_usage_user{{hostname="host_{host}"}}[1h])'
    end = (int(early.ts[-1, 0]) // HOUR_MS + 1) * HOUR_MS // 1000
    data = trial.served.ask(trial.served.connection(), "query", query=expression, time=end)
    return bool(float(data["result"][0]["value"][1]) == 100)  # type: ignore[index]


def _continuous_query(trial: Trial) -> bool:
    """Let a continuous query build a second's maximum, then send a higher value of this second."""
    text = "SELECT max(value) AS value INTO seconds FROM walk GROUP BY time(1s)"
    influxql(trial.served, f"CREATE CONTINUOUS QUERY each ON telegraf BEGIN {text} END", post=True)

    def write(value: int, ms: int) -> None:
        trial.store.push(trial.served, trial.store.lines, [f"walk value={value}i {ms}\n".encode()])

    def built() -> dict[int, int]:
        series = influxql(trial.served, "SELECT value FROM seconds")
        return dict(series[0]["values"]) if series else {}  # type: ignore[call-overload]

    def one_is_built() -> bool:
        write(1, time.time_ns() // 1_000_000)
        return bool(built())

    if not wait_until(one_is_built, 60):
        raise RuntimeError("InfluxDB's continuous query builds nothing")
    second = min(built())
    write(100, second + 1)
    return wait_until(lambda: built()[second] == 100, 5)


def taken_out(trial: Trial, host: int) -> Outcome:
    """Take the middle out of one host's samples: just these are gone from the answers."""
    first_ms, last_ms = (int(trial.fleet.ts[step, 0]) for step in _MIDDLE)
    other = host + 1
    trial.send(trial.fleet, host)
    trial.send(trial.fleet, other)
    if not (trial.holds(host, STEPS) and trial.holds(other, STEPS)):
        return False
    selector = f'{{hostname="host_{host}"}}'
    if trial.store.name == "SPM":
        # From the command line, as README shows it: after the first moment, up to the last.
        limits = ["--after", str(first_ms), "--up-to", str(last_ms)]
        manage(
            trial.served, "retract", str(trial.served.app), "--series", selector, *limits, "--reason", "a test", "--yes"
        )
    elif trial.store.name == "InfluxDB":
        where = f"hostname = 'host_{host}' AND time > {first_ms}ms AND time <= {last_ms}ms"
        influxql(trial.served, f"DELETE FROM cpu WHERE {where}", post=True)
    else:
        form = {"match[]": selector, "start": (first_ms + 1) / 1000, "end": last_ms / 1000}
        with suppress(RuntimeError):  # a store that cannot says so; what is there then decides
            fetch(trial.served, "/api/v1/admin/tsdb/delete_series", form, post=True)
    left = STEPS - (_MIDDLE[1] - _MIDDLE[0])
    return trial.holds(host, left) and trial.holds(other, STEPS)


def put_back(trial: Trial, host: int) -> Outcome:
    """Undo the retraction of ``taken_out``: all samples are there again."""
    if trial.store.name != "SPM":
        return _NO_CALL
    manage(trial.served, "undo", str(trial.served.app), "1")
    return trial.holds(host, STEPS)


def as_of(trial: Trial, host: int) -> Outcome:
    """Ask for what was known before a late report: the report is not in it, and is in the answer of now."""
    if trial.store.name != "SPM":
        return _NO_CALL
    first, rest = (Fleet(trial.fleet.ts[part], trial.fleet.values[part]) for part in (slice(0, 30), slice(30, STEPS)))
    trial.send(first, host)
    time.sleep(_REST_S)
    moment = time.time()
    time.sleep(_REST_S)
    trial.send(rest, host)
    return trial.holds(host, STEPS) and trial.count(host, asof=moment) == 30


def survives(trial: Trial, host: int) -> Outcome:
    """Kill every process by -9 right after an answer of success, and start again: all samples are there."""
    taken = trial.send(trial.fleet, host)
    for process, _ in processes(trial.served.process.pid):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    trial.served.process.wait(60)
    again = trial.store.start(trial.served.data)
    assert again is not None, "BUG: a store that ran is not installed"
    trial.served = again
    return taken and trial.holds(host, STEPS)


Claim = Callable[[Trial, int], Outcome]
CLAIMS: dict[str, tuple[Claim, int]] = {  # each with the host whose samples it sends
    "an acknowledged push survives `kill -9`": (survives, 0),
    "a push that comes twice counts once": (once, 1),
    "samples of three hours ago are taken": (late, 2),
    "they correct what was rolled up": (rollups, 3),
    "a range of one series is taken out": (taken_out, 4),
    "and put back": (put_back, 4),
    "a query as of an earlier moment": (as_of, 6),
}


def judge(store: Store, folder: Path) -> dict[str, Outcome] | None:
    """Make every experiment on a new store; ``None`` where it is not installed."""
    with trial(store, folder) as tried:
        if tried is None:
            return None
        return {name: claim(tried, host) for name, (claim, host) in CLAIMS.items()}


@contextmanager
def trial(store: Store, folder: Path) -> Iterator[Trial | None]:
    """Run a new store for a while; ``None`` where it is not installed."""
    served = store.start(folder)
    if served is None:
        yield None
        return
    end_ms = time.time_ns() // 1_000_000 // STEP_MS * STEP_MS - HOUR_MS // 4
    tried = Trial(store, served, Fleet.make(hosts=8, steps=STEPS, start_ms=end_ms - STEPS * STEP_MS))
    try:
        yield tried
    finally:
        tried.served.stop()
