"""The tables of judging: lanes and their operations, versions of rules, instances, transitions and episodes."""

from collections.abc import Iterable
from enum import StrEnum

from django.conf import settings
from django.db import models

from alerts.judging.automaton import InstanceState, Phase
from alerts.judging.instances.keys import Aspect, EndReason, InstanceKey
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.lane_plan import LaneState, News, OperationKind
from alerts.judging.reconciliation import EpisodeStatus
from alerts.judging.versions import Closing
from alerts.models.rule import Rule, Severity


def _choices(kinds: Iterable[StrEnum]) -> list[tuple[str, str]]:
    return [(kind.value, kind.name.replace("_", " ").title()) for kind in kinds]


class Lane(models.Model):
    """The unit of judging and of locking: the rules of one app, judged together, step by step.

    ``seq`` grows by one with each operation and each edit of a rule; an operation is committed only if it still has the
    number that was read before, so that no two judges write one step and no verdict rests on a replaced version.
    """

    app = models.OneToOneField("accounts.App", models.CASCADE, related_name="lane")
    seq = models.BigIntegerField(default=0)
    position_ms = models.BigIntegerField(help_text="judged up to this step")
    first_ms = models.BigIntegerField(help_text="the step before the first one that was judged")
    waiting = models.TextField(blank=True, help_text="why the next step is not judged yet")
    vector = models.BinaryField(default=b"", help_text="what the last operation knew")
    retractions = models.JSONField(default=list, blank=True)
    behind_ms = models.BigIntegerField(null=True, blank=True, help_text="since this step absences are not judged")
    owed_ms = models.BigIntegerField(null=True, blank=True, help_text="samples from here on are to be judged again")
    owed_metrics = models.JSONField(null=True, blank=True)
    rejudged_ms = models.BigIntegerField(default=0)
    lease_until_ms = models.BigIntegerField(default=0)
    took_us = models.BigIntegerField(default=0, help_text="the last operation, in microseconds")

    class Meta:
        indexes = [models.Index(fields=["position_ms"])]

    def __str__(self) -> str:
        return f"lane of {self.app}"

    @property
    def knowledge(self) -> KeptKnowledge | None:
        """What its last operation knew; None if that was not kept."""
        return KeptKnowledge(bytes(self.vector), tuple(self.retractions)) if self.vector else None

    @property
    def state(self) -> LaneState:
        """What decides about its next operation."""
        owed = None
        if self.owed_ms is not None:
            owed = News(self.owed_ms, None if self.owed_metrics is None else frozenset(self.owed_metrics))
        return LaneState(self.position_ms, self.first_ms, owed, self.behind_ms, self.rejudged_ms)


class Operation(models.Model):
    """One change of a lane: its steps (after, upto] were judged, skipped or taken back.

    ``vector`` and ``retractions`` are K: what was known. From ``behind_ms`` on absences were not judged. ``silent``
    names sources that were no longer waited for.
    """

    lane = models.ForeignKey(Lane, models.CASCADE, related_name="operations")
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=8, choices=_choices(OperationKind))
    after_ms = models.BigIntegerField()
    upto_ms = models.BigIntegerField()
    made_ms = models.BigIntegerField()
    vector = models.BinaryField(default=b"")
    retractions = models.JSONField(default=list, blank=True)
    behind_ms = models.BigIntegerField(null=True, blank=True)
    silent = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["-seq"]
        constraints = [models.UniqueConstraint(fields=["lane", "seq"], name="one_operation_per_number")]
        indexes = [models.Index(fields=["made_ms"])]

    def __str__(self) -> str:
        return f"{self.lane} {self.seq}"

    @property
    def knowledge(self) -> KeptKnowledge | None:
        """What it knew; None if that was not kept."""
        return KeptKnowledge(bytes(self.vector), tuple(self.retractions)) if self.vector else None


class RuleVersionRow(models.Model):
    """The content of a rule from a step on, until before another step. Edits add rows."""

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="versions")
    from_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(null=True, blank=True)
    seq = models.BigIntegerField(help_text="the lane's number that the edit took")
    content = models.JSONField()

    class Meta:
        ordering = ["rule", "from_ms"]
        constraints = [models.UniqueConstraint(fields=["rule", "from_ms"], name="one_version_per_step")]

    def __str__(self) -> str:
        return f"{self.rule} from {self.from_ms}"


class ManualEnd(models.Model):
    """A person ended an alert: from this step on it does not fire until it was well."""

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="manual_ends")
    fingerprint = models.CharField(max_length=32, blank=True)
    aspect = models.CharField(max_length=8, choices=_choices(Aspect))
    at_ms = models.BigIntegerField(help_text="the step")
    seq = models.BigIntegerField(help_text="the lane's number that it took")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    made_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-at_ms", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "fingerprint", "aspect", "at_ms"], name="one_manual_end_per_step")
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.fingerprint} at {self.at_ms}"

    @property
    def closing(self) -> Closing:
        """What judging makes of it."""
        return Closing(self.fingerprint, self.aspect, self.at_ms)


class Instance(models.Model):
    """One aspect of a series of a rule, while it is not ok. What is ok has no row."""

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="instances")
    fingerprint = models.CharField(max_length=32, blank=True)
    aspect = models.CharField(max_length=8, choices=_choices(Aspect))
    labels = models.JSONField()
    phase = models.CharField(max_length=10, choices=_choices(Phase))
    since_ms = models.BigIntegerField(help_text="the step at which the phase began")
    start_ms = models.BigIntegerField(null=True, blank=True, help_text="the first firing step")
    active_ms = models.BigIntegerField(help_text="the step at which it left ok")
    missing_ms = models.BigIntegerField(null=True, blank=True, help_text="the first step without data")
    value = models.FloatField(null=True, help_text="at its last transition")
    detail = models.TextField(blank=True, help_text="the text of an error")

    class Meta:
        ordering = ["phase", "-since_ms"]
        constraints = [models.UniqueConstraint(fields=["rule", "fingerprint", "aspect"], name="one_row_per_instance")]

    def __str__(self) -> str:
        return f"{self.rule} {self.fingerprint} {self.phase}"

    @property
    def key(self) -> InstanceKey:
        """The instance's name in judging."""
        return InstanceKey(self.rule_id, self.fingerprint, self.aspect)

    @property
    def state(self) -> InstanceState:
        """The instance's state, for the automaton."""
        return InstanceState(Phase(self.phase), self.since_ms, self.start_ms, self.active_ms, self.missing_ms)

    @property
    def shown(self) -> str:
        """The state in one word, as pages show it."""
        if self.aspect == Aspect.ERROR:
            return "error"
        if self.aspect == Aspect.MISSING and self.phase == Phase.CLOSED:
            return self.phase
        if self.aspect == Aspect.MISSING or (self.phase == Phase.PENDING and self.missing_ms is not None):
            return "no data"
        return self.phase


class AlertEvent(models.Model):
    """One transition of an instance, written once in the transaction of its operation.

    A transition that changes no phase begins or ends a gap in the data. Judging again marks rows that no longer hold
    with the number of its operation, and deletes none. ``before_state`` is what the automaton had before; rows older
    than lanes have none.
    """

    STATES = [*_choices(Phase), ("inactive", "Inactive"), ("resolved", "Resolved")]

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="events")
    fingerprint = models.CharField(max_length=32, blank=True)
    aspect = models.CharField(max_length=8, choices=_choices(Aspect), default=Aspect.VALUE)
    labels = models.JSONField()
    before = models.CharField(max_length=10, choices=STATES)
    state = models.CharField(max_length=10, choices=STATES)
    episode_ms = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    value = models.FloatField(null=True)
    reason = models.CharField(max_length=200, blank=True)
    before_state = models.JSONField(null=True)
    seq = models.BigIntegerField(default=0, help_text="the number of its operation")
    superseded_seq = models.BigIntegerField(
        null=True, blank=True, help_text="the operation since which it does not hold"
    )

    class Meta:
        ordering = ["-at_ms", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "fingerprint", "aspect", "at_ms"],
                condition=models.Q(superseded_seq=None) & ~models.Q(seq=0),
                name="one_transition_per_step",
            )
        ]
        indexes = [models.Index(fields=["rule", "-at_ms"])]

    def __str__(self) -> str:
        return f"{self.rule} {self.before} → {self.state}"

    @property
    def key(self) -> InstanceKey:
        """The instance's name in judging."""
        return InstanceKey(self.rule_id, self.fingerprint, self.aspect)


class Episode(models.Model):
    """One stretch of time in which one aspect of a series of a rule is firing.

    Its identity stays when late data moves its start or end. ``revision`` grows by one with each change, so that a
    reader sees which of two copies is newer. Times are steps of the rule's grid, except ``created_ms`` and
    ``changed_ms``, which are times of the clock that recorded the change.
    """

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="episodes")
    fingerprint = models.CharField(max_length=32)
    aspect = models.CharField(max_length=8, choices=_choices(Aspect), default=Aspect.VALUE)
    labels = models.JSONField()
    severity = models.CharField(max_length=8, choices=Severity.choices, help_text="of the rule when it began")
    start_ms = models.BigIntegerField(help_text="the first step at which it fired")
    end_ms = models.BigIntegerField(null=True, blank=True, help_text="the first step at which it no longer fired")
    status = models.CharField(max_length=8, choices=_choices(EpisodeStatus), default=EpisodeStatus.OPEN)
    end_reason = models.CharField(max_length=16, choices=_choices(EndReason), blank=True)
    found_late = models.BooleanField(default=False, help_text="it was over when it was first judged")
    revision = models.IntegerField(default=1)
    start_value = models.FloatField(null=True)
    last_value = models.FloatField(null=True)
    merged_into = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="merged_episodes")
    created_ms = models.BigIntegerField()
    changed_ms = models.BigIntegerField()

    class Meta:
        ordering = ["-start_ms", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "fingerprint", "aspect"],
                condition=models.Q(status=EpisodeStatus.OPEN),
                name="one_open_episode",
            ),
            models.CheckConstraint(
                condition=models.Q(status=EpisodeStatus.OPEN, end_ms=None)
                | ~models.Q(status=EpisodeStatus.OPEN) & models.Q(end_ms__isnull=False),
                name="only_open_episodes_lack_an_end",
            ),
        ]
        indexes = [models.Index(fields=["rule", "-start_ms"]), models.Index(fields=["status", "end_ms"])]

    def __str__(self) -> str:
        return f"{self.rule} {self.fingerprint} {self.status}"
