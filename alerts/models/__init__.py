"""The tables of alerting: ``rule``; ``judging``: lanes, instances, transitions, episodes; ``telling``; ``noise``.

Times are milliseconds since the epoch. Rows change only through ``rulebook`` (people), ``journal`` (judging) and
``outbox`` (deliveries).
"""

from alerts.judging.instances.keys import Aspect, EndReason
from alerts.judging.reconciliation import EpisodeStatus
from alerts.models.judging import AlertEvent, Episode, Instance, Lane, ManualEnd, Operation, RuleVersionRow
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.rule import Rule, Severity
from alerts.models.rule_file import RecordingRule, RuleGroup, SeriesLane
from alerts.models.telling import DEFAULT_KIND, Delivery, Outbox

__all__ = [
    "DEFAULT_KIND",
    "AlertEvent",
    "Aspect",
    "Delivery",
    "EndReason",
    "Episode",
    "EpisodeStatus",
    "Instance",
    "Lane",
    "ManualEnd",
    "NoiseReport",
    "NoisyRule",
    "Operation",
    "Outbox",
    "RecordingRule",
    "Rule",
    "RuleGroup",
    "RuleVersionRow",
    "SeriesLane",
    "Severity",
]
