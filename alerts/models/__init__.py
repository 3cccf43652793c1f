"""The tables of alerting: ``rule``, ``judging`` (states, events, episodes) and ``telling`` (messages).

Times are milliseconds since the epoch. Rows change only through ``rulebook`` (people), ``evaluate`` (evaluations) and
``outbox`` (deliveries).
"""

from alerts.models.judging import Alert, AlertEvent, Aspect, EndReason, Episode, EpisodeStatus
from alerts.models.rule import Rule, Severity
from alerts.models.telling import DEFAULT_KIND, Delivery, Outbox

__all__ = [
    "DEFAULT_KIND",
    "Alert",
    "AlertEvent",
    "Aspect",
    "Delivery",
    "EndReason",
    "Episode",
    "EpisodeStatus",
    "Outbox",
    "Rule",
    "Severity",
]
