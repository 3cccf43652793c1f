"""Ten thousand rules over a thousand series, judged step by step in one process: seconds a step, and CPU ms a rule.

A hundred hosts have ten metrics on LMDB, half an hour of samples. The rules are thresholds on 200 distinct expressions;
at most steps nothing changes, at one step a fiftieth of the rules begins to fire and at the next it ends. Enter by
``run``; Django must be set up with an empty data folder.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from django.conf import settings
from django.core.management import call_command

from alerts import evaluate, journal
from alerts.models import Instance, Lane, Rule, RuleVersionRow
from alerts.recording.sessions import open_session
from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from spm.accounts.models import App, Organisation
from spm.clock import FakeClock
from spm.limits import RULE_PERIOD_MS
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.bench import report
from tests.bench.rules import EXPRESSIONS, HOSTS, METRICS, expressions

QUIET_STEPS = 10
START_MS = 1_800_000_000_000
SAMPLES = 180  # of each series


def value(step: int) -> float:
    """Return what all hosts measure at a step: at one step it is far above."""
    return 95.0 if step == SAMPLES - 2 else 50.0 + step % 3


def fill(app: int) -> None:
    """Write the samples of all hosts."""
    writer, stamper = Writer(open_backend(settings.SPM_STORE_URL), PlacementTable()), Stamper(1, FakeClock(START_MS))
    times = START_MS + np.arange(SAMPLES, dtype=np.int64) * RULE_PERIOD_MS
    values = np.array([value(step) for step in range(SAMPLES)])
    messages = []
    for host in range(HOSTS):
        table = SeriesTable.from_canonical([canonical(f"m{n}", {"host": f"host_{host}"}) for n in range(METRICS)])
        index = np.repeat(np.arange(METRICS, dtype=np.int32), SAMPLES)
        parsed = Parsed(table, index, np.tile(times, METRICS), np.tile(values, METRICS))
        messages.append(stamper.stamp_message(app=app, source=f"host_{host}", parsed=parsed, message_id=bytes(16)))
    writer.write(messages)


def write_rules(app: App, count: int, at_ms: int) -> None:
    """Write the rules as rows: a fiftieth has a threshold that is crossed, the others one that never is."""
    texts = expressions()
    rules = [
        Rule(
            app=app,
            name=f"rule {number}",
            expr=texts[number % EXPRESSIONS],
            threshold=90.0 if number // EXPRESSIONS == 0 else 1_000.0 + number,
            created_ms=at_ms,
            changed_ms=at_ms,
        )
        for number in range(count)
    ]
    Rule.objects.bulk_create(rules, batch_size=1_000)
    rows = [RuleVersionRow(rule=rule, from_ms=at_ms, seq=0, content=journal.content_of(rule)) for rule in rules]
    RuleVersionRow.objects.bulk_create(rows, batch_size=1_000)
    Lane.objects.create(app=app, position_ms=at_ms, first_ms=at_ms)


def run(count: int) -> None:
    """Print how long steps take: quiet ones, and those at which rules begin and cease to fire."""
    call_command("migrate", verbosity=0)
    app = App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    fill(app.pk)
    clock = FakeClock(START_MS + (SAMPLES - 3 - QUIET_STEPS) * RULE_PERIOD_MS)
    write_rules(app, count, clock.now_ms())
    observe = evaluate.at_present(open_session, clock)
    took: list[tuple[float, float, int]] = []
    for _ in range(QUIET_STEPS + 2):
        clock.advance(RULE_PERIOD_MS)
        with timed(took):
            counts = evaluate.evaluate_due_lanes(observe=observe, clock=clock)
        assert (counts.evaluated, counts.failed) == (1, 0)
        took[-1] = (*took[-1][:2], Instance.objects.count())
    quiet = took[1:QUIET_STEPS]
    report.line(
        f"{count} rules, a quiet step",
        wall_s=float(np.median([wall for wall, _, _ in quiet])),
        cpu_ms_a_rule=float(np.median([cpu for _, cpu, _ in quiet])) * 1e3 / count,
        first_s=took[0][0],
    )
    for name, (wall, _, alerts) in zip(("begin", "end"), took[QUIET_STEPS:], strict=True):
        report.line(f"{count} rules, a step at which alerts {name}", wall_s=wall, alerts_after=alerts)


@contextmanager
def timed(took: list[tuple[float, float, int]]) -> Iterator[None]:
    """Append the wall and CPU seconds of a block."""
    began, cpu = time.perf_counter(), time.process_time()
    yield
    took.append((time.perf_counter() - began, time.process_time() - cpu, 0))
