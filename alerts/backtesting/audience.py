"""Who would have heard of a rule's past episodes: the receivers that it names, and those of today's policies."""

from collections.abc import Iterable, Mapping

from alerts.backtesting.backtests import PastEpisode
from alerts.judging.instances.keys import Aspect
from alerts.models import Rule
from alerts.models.telling import Receiver
from alerts.notify.registry import kind_of
from alerts.telling.configuration import read_configuration
from alerts.telling.decide.routing import matching_policies
from alerts.templating.alert_texts import alert_labels


def count_receivers(rule: Rule, episodes: Iterable[PastEpisode], *, now_ms: int) -> int:
    """Count the receivers, each once; silences and mute timings are left out, as they are in a backtest."""
    episodes_told = [each for each in episodes if each.aspect != Aspect.ERROR]
    if not episodes_told:
        return 0
    organisation = rule.app.organisation_id
    own = {(kind_of(text) or "", text) for text in rule.receivers}
    policies = read_configuration(organisation, now_ms).policies
    reached = {
        receiver
        for labels in _distinct(_matched_labels(rule, each) for each in episodes_told)
        for policy in matching_policies(policies, labels)
        for receiver in policy.receivers
    }
    by_policy = set(Receiver.objects.filter(pk__in=reached).values_list("kind", "target"))
    return len(own | by_policy)


def _matched_labels(rule: Rule, episode: PastEpisode) -> dict[str, str]:
    value = float("nan") if episode.value is None else episode.value
    labels = alert_labels(rule.name, rule.alert_labels, episode.labels, value)
    return {"severity": rule.severity, **labels, "app": rule.app.name}


def _distinct(every: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    return [dict(labels) for labels in {tuple(sorted(each.items())) for each in every}]
