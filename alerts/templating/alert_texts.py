"""The labels and annotations of one alert: those of its series with those of its rule, rendered. Pure."""

from collections.abc import Mapping

from alerts.templating.functions import AlertFacts, Query
from alerts.templating.template import render_all

_METRIC_NAME, _ALERT_NAME = "__name__", "alertname"


def alert_labels(name: str, templates: Mapping[str, str], series: Mapping[str, str], value: float) -> dict[str, str]:
    """Return the labels of an alert as Prometheus has them: no metric name, the rule's labels before the series'."""
    own = render_all(templates, AlertFacts(_plain(series), value))
    labels = {**_plain(series), **own, _ALERT_NAME: name}
    return {label: text for label, text in labels.items() if text}


def alert_annotations(
    templates: Mapping[str, str], series: Mapping[str, str], value: float, query: Query | None = None
) -> dict[str, str]:
    """Return the annotations of an alert; ``query`` answers what they ask of its app."""
    return render_all(templates, AlertFacts(_plain(series), value, query=query))


def _plain(series: Mapping[str, str]) -> dict[str, str]:
    return {label: text for label, text in series.items() if label != _METRIC_NAME}
