"""What the editor shows of a rule tried on the past: how often it had fired, who had heard, what a longer for saves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from alerts.backtesting.audience import count_receivers
from alerts.backtesting.backtests import BacktestReport, ForEffect, PastEpisode, try_rule, version_of
from alerts.expressions import admitted
from alerts.models import Rule
from alerts.pages.editor.picture import Picture, draw
from spm.accounts.models import App
from spm.errors import SpmError
from spm.limits import HOUR_MS

EPISODES_SHOWN = 50
NOW, THEN = "now", "then"
_DAY_MS = 24 * HOUR_MS


class RangeForm(forms.Form):
    """How far back to try, and on which knowledge."""

    days = forms.TypedChoiceField(
        choices=[(1, "1 day"), (7, "7 days"), (30, "30 days")], coerce=int, initial=7, required=False
    )
    known = forms.ChoiceField(
        choices=[(NOW, "what is known now"), (THEN, "what judging knew then")], initial=NOW, required=False, label="On"
    )

    def range_ms(self) -> int:
        """Return how far back to try."""
        return int(self.cleaned_data.get("days") or 7) * _DAY_MS

    def as_live_knew(self) -> bool:
        """Whether each step is judged on what was known then."""
        return bool(self.cleaned_data.get("known") == THEN)


@dataclass(frozen=True, slots=True)
class Trial:
    """The report of a backtest as the page shows it, or why there is none."""

    error: str = ""
    report: BacktestReport | None = None
    picture: Picture | None = None
    receivers: int = 0
    days: int = 0

    @property
    def fired(self) -> int:
        """How often the rule would have fired."""
        return 0 if self.report is None else len(self.report.episodes)

    @property
    def episodes(self) -> Sequence[PastEpisode]:
        """The newest episodes."""
        return () if self.report is None else self.report.episodes[::-1][:EPISODES_SHOWN]

    @property
    def more(self) -> int:
        """The number of episodes that are not shown."""
        return self.fired - len(self.episodes)

    @property
    def longest(self) -> PastEpisode | None:
        """The episode that went on for the longest time."""
        return max(self.report.episodes, key=self._length_ms, default=None) if self.report else None

    @property
    def longest_ms(self) -> int:
        """How long that one went on."""
        return 0 if self.longest is None else self._length_ms(self.longest)

    @property
    def effects(self) -> list[tuple[ForEffect, int]]:
        """What the rule would have said with another ``for``, and how many notifications to each receiver fewer."""
        if self.report is None:
            return []
        return [(each, self.report.notifications - each.notifications) for each in self.report.effects[1:]]

    @property
    def data_from_ms(self) -> int | None:
        """Since when there is data, if that is later than what was asked for."""
        from_ms = None if self.report is None else self.report.ranges.from_ms()
        assert self.report is not None or from_ms is None, "BUG: data without a report"
        is_later = from_ms is not None and self.report is not None and from_ms > self.report.first_ms + HOUR_MS
        return from_ms if is_later else None

    def _length_ms(self, episode: PastEpisode) -> int:
        assert self.report is not None, "BUG: an episode without a report"
        return (self.report.last_ms if episode.end_ms is None else episode.end_ms) - episode.start_ms


def try_draft(rule: Rule, trial: RangeForm, *, now_ms: int) -> Trial:
    """Try a rule, which need not be saved; waits for a place among the queries of its organisation."""
    if not trial.is_valid():
        return Trial("Choose how far back to try, and on which knowledge.")
    span_ms = trial.range_ms()
    try:
        with admitted(rule.app.organisation_id):
            report = try_rule(rule, now_ms - span_ms, now_ms, as_live_knew=trial.as_live_knew())
    except SpmError as error:
        return Trial(str(error))
    receivers = count_receivers(rule, report.episodes, now_ms=now_ms)
    return Trial("", report, draw(report, version_of(rule)), receivers, span_ms // _DAY_MS)


def unsaved(app: App, rule: Rule | None, fields: Mapping[str, Any]) -> Rule:
    """Return a rule with these fields that is not to be saved, under the number of an existing one."""
    return Rule(app=app, pk=rule.pk if rule else None, group=rule.group if rule else None, **fields)
