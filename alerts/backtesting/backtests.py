"""Tries a rule on past data with the engine that judges live: on what is known now, or on what live judging knew.

Nothing is written. Where live judging knew, each step is judged at the K of the lane's operation that judged it first,
and again as the lane was; steps that no operation with a K covers are left out. Enter by ``try_rule``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from alerts import journal, rulebook
from alerts.backtesting.ranges import ValueRanges
from alerts.durations import spell
from alerts.expressions import check_expression
from alerts.judging import composites, limits
from alerts.judging.answers import Answer, Read
from alerts.judging.backtest import KnownSteps, Line, Said, backtest, last_line, notification_times, replay
from alerts.judging.instances.keys import Aspect
from alerts.judging.kinds import Kind
from alerts.judging.lane_plan import OperationKind, aligned_ms
from alerts.judging.readers.order import is_reader, may_read
from alerts.judging.readers.run_alerts import ReadsAlerts, RunAlerts
from alerts.judging.versions import RuleVersion, Steps
from alerts.models import Lane, Operation, Rule
from alerts.recording.sessions import open_session
from alerts.telling.configuration import schedule_of
from alerts.telling.decide.covers import Cover
from alerts.telling.decide.windows import check_timing
from alerts.telling.limits import GROUP_INTERVAL_MS, GROUP_WAIT_MS
from spm import query
from spm.accounts.models import App
from spm.errors import CorruptBlock, LimitExceeded, Refused
from spm.limits import RULE_ACTIVE_MAX, RULE_PERIOD_MS
from spm.store.versions.knowledge import KnowledgeExpired

_FOR_CHOICES_MS = (60_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000)
_LONGER_FOR_CHOICES = 4


@dataclass(frozen=True, slots=True)
class PastEpisode:
    """One stretch in which a series would have fired."""

    labels: Mapping[str, str]
    aspect: str
    start_ms: int
    end_ms: int | None
    reason: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ForEffect:
    """How often a rule would have fired with another ``for``, and how many notifications one receiver had got."""

    for_ms: int
    episodes: int
    notifications: int


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """What a rule would have said: its episodes, when one receiver had heard, and both with other ``for``.

    ``effects`` begins without any ``for``; longer ones than the rule's follow. ``ranges`` are the values that were
    judged, to be drawn.
    """

    first_ms: int
    last_ms: int
    episodes: tuple[PastEpisode, ...]
    notification_times: tuple[int, ...]
    effects: tuple[ForEffect, ...]
    ranges: ValueRanges

    @property
    def notifications(self) -> int:
        """How many notifications one receiver had got."""
        return len(self.notification_times)


def rule_to_try(app: App, number: int | None, fields: Mapping[str, Any]) -> Rule:
    """Return the rule of an app with a number, or an unsaved one with these fields. Raises ``Refused``."""
    if number is not None:
        rule = rulebook.rules_of(app).filter(pk=number).first()
        if rule is None:
            raise Refused(f"app {app.pk} has no rule {number}", remedy="Name one of its rules, or give an expression.")
        return rule
    if not fields.get("expr"):
        raise Refused("there is nothing to try", remedy="Name a rule of this app, or give an expression.")
    return Rule(app=app, **fields)


def try_rule(rule: Rule, from_ms: int, to_ms: int, *, as_live_knew: bool = False) -> BacktestReport:
    """Try a rule, which need not be saved, at the steps of a time range. Raises ``SpmError``."""
    steps = Steps(aligned_ms(from_ms, RULE_PERIOD_MS), aligned_ms(to_ms, RULE_PERIOD_MS), RULE_PERIOD_MS)
    longest_ms = limits.BACKTEST_LIVE_MAX_MS if as_live_knew else limits.BACKTEST_MAX_MS
    if not 0 <= steps.last_ms - steps.first_ms <= longest_ms:
        raise LimitExceeded(
            "a backtest cannot be that long", got=spell(to_ms - from_ms), wanted=f"at most {spell(longest_ms)}"
        )
    version = version_of(rule, rule.pk or 0)
    if version.kind is not Kind.COMPOSITE:
        check_expression(version.value_expr)
    if rule.schedule_cron:
        check_timing(rule.schedule_cron, rule.schedule_zone, rule.schedule_ms)
    variants = [_with_for(version, -number, for_ms) for number, for_ms in enumerate(_for_choices(version), 1)]
    ranges = ValueRanges(steps, limits.BACKTEST_COLUMNS)
    judge = _run_as_live_knew if as_live_knew else _run_now
    line = judge(rule.app_id, [*_parts(version, rule), version, *variants], steps, _watch(version, ranges))
    schedule = schedule_of(rule)
    gaps = schedule.gaps(from_ms=steps.first_ms, to_ms=steps.last_ms) if schedule else []
    effects = [
        ForEffect(each.timing.for_ms, len(_episodes(line, each.rule)), len(_told_at(line, each.rule, gaps)))
        for each in variants
    ]
    told_at = _told_at(line, version.rule, gaps)
    return BacktestReport(
        steps.first_ms, steps.last_ms, _episodes(line, version.rule), tuple(told_at), tuple(effects), ranges
    )


Watch = Callable[[Read], Read]  # adds something to what evaluates expressions


def _watch(version: RuleVersion, ranges: ValueRanges) -> Watch:
    """Return what lets the ranges see the values that the version judges."""

    return lambda read: _WatchedRead(version, ranges, read)


@dataclass(frozen=True, slots=True)
class _WatchedRead:
    """Evaluates expressions, and lets the ranges see the values that the version judges."""

    version: RuleVersion
    ranges: ValueRanges
    read: Read

    def __call__(self, expr: str, steps: Steps, /) -> Answer:
        answer = self.read(expr, steps)
        if expr == self.version.value_expr and steps.period_ms == RULE_PERIOD_MS:
            self.ranges.add(answer, steps)
        return answer

    def with_alerts(self, alerts: RunAlerts) -> Read:
        """Return what evaluates expressions that see the alerts of a run under way."""
        assert isinstance(self.read, ReadsAlerts), "BUG: a session takes the alerts of a run"
        return replace(self, read=self.read.with_alerts(alerts))


def _for_choices(version: RuleVersion) -> list[int]:
    """Return no ``for`` at all, and the next longer ones than the version has."""
    longer = [for_ms for for_ms in _FOR_CHOICES_MS if for_ms > version.timing.for_ms]
    return [0, *longer[:_LONGER_FOR_CHOICES]]


def _with_for(version: RuleVersion, number: int, for_ms: int) -> RuleVersion:
    """Return the version with another ``for``, under a number of its own; its alerts have no series."""
    alert = replace(version.alert, name="") if version.alert else None
    return replace(version, rule=number, timing=replace(version.timing, for_ms=for_ms), alert=alert)


def _run_now(app: int, versions: list[RuleVersion], steps: Steps, watch: Watch) -> Line:
    query.configure(settings.SPM_STORE_URL)
    storage = query.storage_for(app)
    known = storage.known_at(storage.knowledge()[0])
    return backtest(versions, steps, {}, open_read=lambda: watch(open_session(app, known)), active_max=RULE_ACTIVE_MAX)


def _run_as_live_knew(app: int, versions: list[RuleVersion], steps: Steps, watch: Watch) -> Line:
    operations = (
        each if each.read is None else replace(each, read=watch(each.read)) for each in _operations(app, steps)
    )
    said = replay(versions, operations, {}, period_ms=RULE_PERIOD_MS, active_max=RULE_ACTIVE_MAX)
    return last_line(said, {})


def said_as_live_knew(app: int, versions: Sequence[RuleVersion], steps: Steps) -> Iterator[Said]:
    """Yield what these versions say by each operation of the app's lane, at what that operation knew."""
    return replay(versions, _operations(app, steps), {}, period_ms=RULE_PERIOD_MS, active_max=RULE_ACTIVE_MAX)


def _operations(app: int, steps: Steps) -> Iterator[KnownSteps]:
    """Yield the steps of a time range as the lane's operations judged them, with what each of them knew."""
    query.configure(settings.SPM_STORE_URL)
    storage = query.storage_for(app)
    first_ms = steps.first_ms - RULE_PERIOD_MS
    lane = Lane.objects.filter(app=app).first()
    rows = Operation.objects.filter(lane=lane, upto_ms__gt=first_ms, after_ms__lt=steps.last_ms).order_by("seq")
    for row in rows.iterator():
        after_ms, upto_ms, knowledge = max(row.after_ms, first_ms), min(row.upto_ms, steps.last_ms), row.knowledge
        if row.kind != OperationKind.JUDGE or knowledge is None:
            yield KnownSteps(after_ms, upto_ms, None)
            continue
        try:
            known = storage.known_at(storage.restore_knowledge(knowledge.vector, knowledge.retractions))
        except CorruptBlock as error:
            raise KnowledgeExpired(f"operation {row.seq} cannot be replayed: {error}") from error
        yield KnownSteps(after_ms, upto_ms, open_session(app, known), row.behind_ms)


def version_of(rule: Rule, number: int = 0) -> RuleVersion:
    """Return the present content of a rule as a version, under a number."""
    return journal.version_from(number, 0, None, journal.content_of(rule))


def _parts(version: RuleVersion, rule: Rule) -> list[RuleVersion]:
    """Return the present versions of the rules that a composite or a reader of alerts rests on, down to the last."""
    if version.kind is not Kind.COMPOSITE and not is_reader(version):
        return []
    rows = Rule.objects.filter(app=rule.app_id, deleted_ms=None, enabled=True).select_related("group")
    others = {each.pk: version_of(each, each.pk) for each in rows if each.pk != version.rule}
    wanted, parts = _named_by(version, others), dict[int, RuleVersion]()
    while wanted:
        number = wanted.pop()
        if number in others and number not in parts:
            parts[number] = others[number]
            wanted |= _named_by(parts[number], others)
    if len(parts) > limits.BACKTEST_PARTS_MAX:
        raise LimitExceeded(
            "the rule rests on too many others to be tried",
            got=len(parts),
            wanted=f"at most {limits.BACKTEST_PARTS_MAX}",
            remedy="Name the alerts that it reads, by alertname.",
        )
    return list(parts.values())


def _named_by(version: RuleVersion, others: Mapping[int, RuleVersion]) -> set[int]:
    """Return the rules that a version names, or whose alerts it may read."""
    if version.kind is Kind.COMPOSITE:
        return set(composites.parse(version.expr).rules)
    expr = version.value_expr
    return {rule for rule, each in others.items() if each.alert and may_read(expr, each.alert)}


def _episodes(line: Line, rule: int) -> tuple[PastEpisode, ...]:
    own = [(key, each) for key, each in line.stretches() if key.rule == rule]
    return tuple(
        PastEpisode(
            line.labels.get(key.fingerprint, {}),
            key.aspect,
            each.start_ms,
            each.end_ms,
            each.reason or "",
            each.start_value,
        )
        for key, each in sorted(own, key=lambda pair: (pair[1].start_ms, pair[0]))
    )


def _told_at(line: Line, rule: int, gaps: Sequence[Cover]) -> list[int]:
    own = (each for key, each in line.stretches() if key.rule == rule and key.aspect != Aspect.ERROR)
    return notification_times(own, wait_ms=GROUP_WAIT_MS, interval_ms=GROUP_INTERVAL_MS, covers=gaps)
