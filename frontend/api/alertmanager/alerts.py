"""The open alerts of an app as Alertmanager lists them, alone and in the groups in which receivers hear of them.

An alert that no silence, window or other alert covers is ``active``, any other ``suppressed``. The name of a receiver
is that of its contact points, or its address where rules name it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import ContactPoint, LastWord
from alerts.notify.alertmanager import ALERT_LASTS_MS
from alerts.notify.http.alert_format import fingerprint_of
from alerts.notify.registry import shown
from alerts.notify.text import rfc3339
from alerts.open_alerts import AlertFilter, OpenAlert, open_alerts
from alerts.telling.alert_facts import annotations_of
from alerts.telling.limits import ALERTS_SCANNED_MAX
from frontend.api.alertmanager.base import (
    TAG,
    AlertmanagerOperation,
    FilterQuery,
    failures,
    matching,
    read_filter,
    silence_id,
)
from frontend.api.alertmanager.suppression import Suppression, suppressions
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.store.matchers import Matcher, mask

_clock = SystemClock()


class AlertQuery(FilterQuery):
    """Which alerts to list: each flag that is false takes some out."""

    active = serializers.BooleanField(required=False, default=True)
    silenced = serializers.BooleanField(required=False, default=True)
    inhibited = serializers.BooleanField(required=False, default=True)
    muted = serializers.BooleanField(required=False, default=True, help_text="those in a maintenance window")
    unprocessed = serializers.BooleanField(required=False, default=True, help_text="there are none here")
    receiver = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=500, help_text="an expression for its whole name"
    )


class AlertmanagerReceiverSerializer(serializers.Serializer[Any]):
    """A receiver."""

    name = serializers.CharField()


class AlertStatusSerializer(serializers.Serializer[Any]):
    """What keeps an alert from being told."""

    state = serializers.CharField(help_text="active or suppressed")
    silencedBy = serializers.ListField(child=serializers.CharField())
    inhibitedBy = serializers.ListField(child=serializers.CharField(), help_text="fingerprints")
    mutedBy = serializers.ListField(child=serializers.CharField())


class GettableAlertSerializer(serializers.Serializer[Any]):
    """An open alert."""

    labels = serializers.DictField(child=serializers.CharField())
    annotations = serializers.DictField(child=serializers.CharField())
    fingerprint = serializers.CharField()
    startsAt = serializers.CharField()
    updatedAt = serializers.CharField()
    endsAt = serializers.CharField(help_text="until then it lasts if nothing else is heard")
    generatorURL = serializers.CharField()
    receivers = AlertmanagerReceiverSerializer(many=True)
    status = AlertStatusSerializer()


class GettableAlertGroupSerializer(serializers.Serializer[Any]):
    """Alerts of which a receiver hears together."""

    labels = serializers.DictField(child=serializers.CharField())
    receiver = AlertmanagerReceiverSerializer()
    alerts = GettableAlertSerializer(many=True)


class Alerts(AlertmanagerOperation):
    """The open alerts of an app."""

    @extend_schema(
        operation_id="alertmanager_alerts",
        tags=[TAG],
        parameters=[AlertQuery],
        responses={200: GettableAlertSerializer(many=True), **failures(400, 401, 404)},
    )
    def get(self, request: Request) -> Response:
        """The newest 5,000."""
        return Response([alert.entry for alert in self.listed()])

    def listed(self) -> "list[ListedAlert]":
        """Read the alerts that are asked for."""
        query = self.validated_query(AlertQuery)
        return list(chosen(read_alerts(self.asked_app(), _clock.now_ms()), query))


class AlertGroups(Alerts):
    """The open alerts of an app by group."""

    @extend_schema(
        operation_id="alertmanager_alert_groups",
        tags=[TAG],
        parameters=[AlertQuery],
        responses={200: GettableAlertGroupSerializer(many=True), **failures(400, 401, 404)},
    )
    def get(self, request: Request) -> Response:
        """Groups of receivers with the same name and labels are one."""
        groups: dict[tuple[str, str], dict[str, Any]] = {}
        for alert in self.listed():
            for name, labels in alert.groups:
                key = (name, repr(sorted(labels.items())))
                group = groups.setdefault(key, {"labels": labels, "receiver": {"name": name}, "alerts": []})
                if alert.entry not in group["alerts"][-1:]:
                    group["alerts"].append(alert.entry)
        return Response([groups[key] for key in sorted(groups)])


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """An alert in Alertmanager's form, and the groups that it is in: the receiver's name and the group's labels."""

    entry: Mapping[str, Any]
    groups: Sequence[tuple[str, Mapping[str, str]]]


def read_alerts(app: App, now_ms: int) -> list[ListedAlert]:
    """Read the newest open alerts of an app, with what covers them now."""
    of_app = AlertFilter(app=app.pk)
    alerts, _ = open_alerts(app.organisation_id, of_app, cursor=None, limit=ALERTS_SCANNED_MAX, now_ms=now_ms)
    covered = suppressions(app.organisation_id, [each.episode for each in alerts], now_ms)
    fingerprints = {each.episode.pk: fingerprint_of(each.labels) for each in alerts}
    names = receiver_names(app, [word for each in alerts for word in each.words])
    return [_listed(each, covered[each.episode.pk], fingerprints, names, now_ms) for each in alerts]


def receiver_names(app: App, words: Iterable[LastWord]) -> Mapping[int, Sequence[str]]:
    """Return the names of the receivers of these words, by their numbers."""
    names: dict[int, list[str]] = {}
    for point in ContactPoint.objects.filter(organisation=app.organisation_id).prefetch_related("receivers"):
        for receiver in point.receivers.all():
            names.setdefault(receiver.pk, []).append(point.name)
    return {
        word.receiver_id: names.get(word.receiver_id) or [shown(word.receiver.kind, word.receiver.target)]
        for word in words
    }


def chosen(alerts: Iterable[ListedAlert], query: Mapping[str, Any]) -> Iterable[ListedAlert]:
    """Yield the alerts that the parameters ask for."""
    listed, receiver = list(alerts), query["receiver"]
    flags = (("silenced", "silencedBy"), ("inhibited", "inhibitedBy"), ("muted", "mutedBy"))
    is_matching = matching([each.entry["labels"] for each in listed], read_filter(query["filter"]))
    for alert, is_chosen in zip(listed, is_matching, strict=True):
        status = alert.entry["status"]
        if not query["active"] and status["state"] == "active":
            continue
        if not is_chosen or any(status[field] and not query[flag] for flag, field in flags):
            continue
        if not receiver or mask([each["name"] for each in alert.entry["receivers"]], Matcher("", "=~", receiver)).any():
            yield alert


def _listed(
    alert: OpenAlert,
    covered: Suppression,
    fingerprints: Mapping[int, str],
    names: Mapping[int, Sequence[str]],
    now_ms: int,
) -> ListedAlert:
    episode = alert.episode
    is_covered = covered.silences or covered.inhibitors or covered.windows
    entry = {
        "labels": alert.labels,
        "annotations": annotations_of(episode),
        "fingerprint": fingerprints[episode.pk],
        "startsAt": rfc3339(episode.start_ms),
        "updatedAt": rfc3339(episode.changed_ms),
        "endsAt": rfc3339(now_ms + ALERT_LASTS_MS),
        "generatorURL": f"{settings.SPM_BASE_URL}/alerts/{episode.pk}",
        "receivers": [
            {"name": name} for name in sorted({name for word in alert.words for name in names[word.receiver_id]})
        ],
        "status": {
            "state": "suppressed" if is_covered else "active",
            "silencedBy": [silence_id(number) for number in covered.silences],
            "inhibitedBy": [fingerprints.get(number, f"{number:016x}") for number in covered.inhibitors],
            "mutedBy": list(covered.windows),
        },
    }
    groups = [(name, word.group.labels) for word in alert.words for name in names[word.receiver_id]]
    return ListedAlert(entry, groups)
