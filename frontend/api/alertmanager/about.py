"""What Alertmanager says of itself: status with a configuration, and the names of receivers.

The configuration has the organisation's policies that can concern the app, as routes, so that ``amtool config routes``
shows and tests them. Receivers stand in it by name alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import ContactPoint, Policy
from alerts.notify.text import rfc3339
from alerts.telling.decide.matchers import read_matchers
from frontend.api.alertmanager.alerts import AlertmanagerReceiverSerializer
from frontend.api.alertmanager.base import TAG, AlertmanagerOperation, AppQuery, failures
from frontend.api.alertmanager.silences import matcher_text
from frontend.api.alertmanager.suppression import concerns
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.query.formats.prometheus import duration

API_VERSION = "0.28.0"  # the version whose API this is
OF_RULES = "receivers of the rule"  # of alerts that no policy takes
_clock = SystemClock()
_STARTED_MS = _clock.now_ms()


class ClusterSerializer(serializers.Serializer[Any]):
    """The cluster that there is not."""

    status = serializers.CharField()
    peers = serializers.ListField(child=serializers.CharField())


class ConfigSerializer(serializers.Serializer[Any]):
    """A configuration."""

    original = serializers.CharField(help_text="YAML")


class AlertmanagerVersionSerializer(serializers.Serializer[Any]):
    """Which Alertmanager's interface this is."""

    version = serializers.CharField()
    revision = serializers.CharField()
    branch = serializers.CharField()
    buildUser = serializers.CharField()
    buildDate = serializers.CharField()
    goVersion = serializers.CharField()


class AlertmanagerStatusSerializer(serializers.Serializer[Any]):
    """Status."""

    cluster = ClusterSerializer()
    config = ConfigSerializer()
    uptime = serializers.CharField(help_text="since when")
    versionInfo = AlertmanagerVersionSerializer()


class AlertmanagerStatus(AlertmanagerOperation):
    """The status of the service, as an app sees it."""

    @extend_schema(
        operation_id="alertmanager_status",
        tags=[TAG],
        parameters=[AppQuery],
        responses={200: AlertmanagerStatusSerializer, **failures(401, 404)},
    )
    def get(self, request: Request) -> Response:
        """Version, and policies as routes."""
        unknown = dict.fromkeys(("revision", "branch", "buildUser", "buildDate", "goVersion"), "")
        return Response(
            {
                "cluster": {"status": "disabled", "peers": []},
                "config": {"original": configuration(self.asked_app())},
                "uptime": rfc3339(_STARTED_MS),
                "versionInfo": {"version": API_VERSION, **unknown},
            }
        )


class AlertmanagerReceivers(AlertmanagerOperation):
    """The names of receivers."""

    @extend_schema(
        operation_id="alertmanager_receivers",
        tags=[TAG],
        parameters=[AppQuery],
        responses={200: AlertmanagerReceiverSerializer(many=True), **failures(401, 404)},
    )
    def get(self, request: Request) -> Response:
        """The contact points of the app's organisation, and what stands for receivers that rules name."""
        return Response([{"name": name} for name in _receivers(self.asked_app())])


def configuration(app: App) -> str:
    """Return the policies that can concern an app as the YAML of an Alertmanager."""
    policies = Policy.objects.filter(organisation=app.organisation_id).select_related("contact_point")
    rows = [row for row in policies if concerns(read_matchers(row.matchers), app.name)]
    route = {"receiver": OF_RULES, "routes": list(_routes(rows, None))}
    receivers = [{"name": name} for name in _receivers(app)]
    return str(yaml.safe_dump({"route": route, "receivers": receivers}, sort_keys=False, allow_unicode=True))


def _routes(rows: Sequence[Policy], parent: int | None) -> Iterator[dict[str, Any]]:
    for row in (each for each in rows if each.parent_id == parent):
        yield {
            "receiver": row.contact_point.name,
            "matchers": [matcher_text(each) for each in read_matchers(row.matchers)],
            "group_by": list(row.group_by),
            "group_wait": duration(row.wait_ms),
            "group_interval": duration(row.interval_ms),
            "repeat_interval": duration(row.repeat_ms),
            "continue": row.goes_on,
            "routes": list(_routes(rows, row.pk)),
        }


def _receivers(app: App) -> list[str]:
    points = ContactPoint.objects.filter(organisation=app.organisation_id)
    return [*points.values_list("name", flat=True), OF_RULES]
