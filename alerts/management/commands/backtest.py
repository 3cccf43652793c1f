"""``manage.py backtest APP …``: tries a rule on past data and lists what it would have said.

manage.py backtest 7 --rule NUMBER --hours 24
manage.py backtest 7 --expr cpu_usage_total --comparator '>' --threshold 90 --for 5m --hours 168
manage.py backtest 7 --rule NUMBER --hours 2 --as-live-knew
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from alerts import durations
from alerts.backtesting.backtests import PastEpisode, rule_to_try, try_rule
from alerts.judging.kinds import Kind
from alerts.models import Rule
from spm.accounts.access import require_app_number
from spm.clock import SystemClock, moment
from spm.errors import SpmError
from spm.limits import HOUR_MS


class Command(BaseCommand):
    """The command ``backtest``."""

    help = "Try a rule on past data; nothing is written."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("--rule", type=int, help="the number of a rule of the app")
        parser.add_argument("--expr", default="", help="PromQL, in place of a rule")
        parser.add_argument("--kind", default=Kind.THRESHOLD.value, choices=[kind.value for kind in Kind])
        parser.add_argument("--comparator", default="", choices=["", *(sign for sign, _ in Rule.COMPARATORS if sign)])
        parser.add_argument("--threshold", type=float, default=0.0)
        parser.add_argument("--for", default="0s", dest="for_text", metavar="DURATION", help="90s, 5m, 1h30m")
        parser.add_argument("--hours", type=float, default=24.0, help="how much of the past, up to now")
        parser.add_argument("--as-live-knew", action="store_true", help="judge each step on what was known then")

    def handle(self, *args: Any, **options: Any) -> None:
        """Try the rule and print the report."""
        now_ms = SystemClock().now_ms()
        try:
            app = require_app_number(options["app"])
            fields = {name: options[name] for name in ("kind", "expr", "comparator", "threshold")}
            rule = rule_to_try(app, options["rule"], {**fields, "for_ms": durations.read(options["for_text"])})
            from_ms = now_ms - int(options["hours"] * HOUR_MS)
            report = try_rule(rule, from_ms, now_ms, as_live_knew=options["as_live_knew"])
        except SpmError as error:
            raise CommandError(str(error)) from error
        for each in report.episodes:
            self.stdout.write(_line(each))
        self.stdout.write(f"{len(report.episodes)} episodes, {report.notifications} notifications to one receiver")
        for effect in report.effects:
            counts = f"{effect.episodes} episodes, {effect.notifications} notifications"
            self.stdout.write(f"with for {durations.spell(effect.for_ms)}: {counts}")


def _line(episode: PastEpisode) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(episode.labels.items()))
    end = "still firing" if episode.end_ms is None else f"{moment(episode.end_ms):%F %T} {episode.reason}"
    return f"{moment(episode.start_ms):%F %T}  {end}  {episode.aspect}  {labels}"
