"""Tries the noisiest rules of a report with a longer ``for``, by the engine that judges live.

A rule is tried as it is now, on what is known now; so what the report counts and what the backtest counts may differ.
Enter by ``try_longer``.
"""

from collections.abc import Sequence
from dataclasses import asdict

from alerts.backtesting.backtests import try_rule
from alerts.expressions import admitted
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.noise import limits
from spm.clock import Clock
from spm.errors import SpmError
from spm.limits import RULE_PERIOD_MS


def try_longer(report: NoiseReport, rows: Sequence[NoisyRule], *, clock: Clock) -> None:
    """Write onto the first rows what longer ``for`` would have said in the report's time, or why that is not known."""
    begun_s = clock.monotonic()
    for row in rows[: limits.RULES_TRIED]:
        if row.rule.deleted_ms is not None or not row.rule.enabled:
            row.untried = "the rule is off or deleted"
        elif clock.monotonic() - begun_s > limits.TRY_S:
            row.untried = "there was no time left"
        else:
            _try(report, row)


def _try(report: NoiseReport, row: NoisyRule) -> None:
    try:
        with admitted(report.organisation_id):
            tried = try_rule(row.rule, report.from_ms, report.to_ms - RULE_PERIOD_MS)
    except SpmError as error:
        row.untried = str(error)[:500]
        return
    row.for_ms, row.tried_notifications = row.rule.for_ms, tried.notifications
    row.effects = [asdict(each) for each in tried.effects[1:]]
