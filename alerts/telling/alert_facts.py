"""What an alert is called and says to those who hear of it: the labels and annotations of an episode, rendered.

Labels name an alert: policies, silences and receivers know it by them. A template in them sees the value with which the
episode began, so that its end has the labels of its beginning. Annotations are texts for people, with the newest value.
"""

import math

from alerts.models import Aspect, Episode
from alerts.notify.text import cut
from alerts.templating import limits
from alerts.templating.alert_texts import alert_annotations, alert_labels

RUNBOOK = "runbook_url"


def labels_of(episode: Episode) -> dict[str, str]:
    """Return the labels of an episode's alert, as Prometheus has them: a rule of a file adds only its own."""
    rule = episode.rule
    templates = rule.own_labels if rule.group else {"severity": str(episode.severity), **rule.own_labels}
    return alert_labels(rule.name, templates, episode.labels, _number(episode.start_value))


def annotations_of(episode: Episode) -> dict[str, str]:
    """Return the annotations of an episode's alert, each cut at what a notification has room for.

    They speak of a value: of missing data, and of a rule that cannot be judged, only the runbook is left.
    """
    own = episode.rule.annotations
    if episode.aspect != Aspect.VALUE:
        own = {name: text for name, text in own.items() if name == RUNBOOK}
    texts = alert_annotations(own, episode.labels, _number(episode.last_value))
    return {name: cut(text, limits.ANNOTATION_CHARS_MAX) for name, text in texts.items()}


def matched_labels(episode: Episode) -> dict[str, str]:
    """Return the labels that policies and silences match: those of the alert, always with a severity, and its app."""
    return {"severity": str(episode.severity), **labels_of(episode), "app": episode.rule.app.name}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
