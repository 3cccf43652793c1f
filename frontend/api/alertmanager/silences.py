"""Silences that concern one app, as Alertmanager has them: list, create, replace, expire.

What is created here names the app: its alerts alone are silenced, whatever else matches. A silence of the whole
organisation is shown, too, and ended in the organisation's own interface.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from alerts.models.telling import Silence
from alerts.notify.text import rfc3339
from alerts.telling import actions
from alerts.telling.decide.matchers import Matchers, read_matchers
from alerts.telling.limits import MATCHERS_CHARS_MAX, MATCHERS_MAX, SILENCES_MAX
from frontend.api.alertmanager.base import (
    TAG,
    AlertmanagerOperation,
    AppQuery,
    FilterQuery,
    failures,
    matching,
    read_filter,
    silence_id,
)
from frontend.api.alertmanager.suppression import APP_LABEL, concerns, is_of_app
from frontend.api.base import row_of
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.store.matchers import Matcher

_clock = SystemClock()
_OPS = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}
_COMMENT_CHARS_MAX = 200
_SOMEBODY = "a program or a link"  # of whom is not known who it was


class MatcherSerializer(serializers.Serializer[Any]):
    """A condition on a label."""

    name = serializers.RegexField(r"^[a-zA-Z_][a-zA-Z0-9_]*\Z", max_length=MATCHERS_CHARS_MAX)
    value = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=MATCHERS_CHARS_MAX)
    isRegex = serializers.BooleanField()
    isEqual = serializers.BooleanField(default=True)


class PostableSilenceSerializer(serializers.Serializer[Any]):
    """A silence to create."""

    id = serializers.CharField(
        default="", allow_blank=True, allow_null=True, max_length=40, help_text="one that it replaces, which ends"
    )
    matchers = serializers.ListField(child=MatcherSerializer(), min_length=1, max_length=MATCHERS_MAX)
    startsAt = serializers.DateTimeField(help_text="the past means now")
    endsAt = serializers.DateTimeField()
    createdBy = serializers.CharField(max_length=100, help_text="stands in the comment")
    comment = serializers.CharField(allow_blank=True, max_length=_COMMENT_CHARS_MAX)


class PostedSilenceSerializer(serializers.Serializer[Any]):
    """A silence that was created."""

    silenceID = serializers.CharField()


class SilenceStatusSerializer(serializers.Serializer[Any]):
    """Whether a silence is in force."""

    state = serializers.CharField(help_text="pending, active or expired")


class GettableSilenceSerializer(serializers.Serializer[Any]):
    """A silence."""

    id = serializers.UUIDField()
    status = SilenceStatusSerializer()
    matchers = MatcherSerializer(many=True)
    startsAt = serializers.DateTimeField()
    endsAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    comment = serializers.CharField()


class SilenceOperation(AlertmanagerOperation):
    """An operation on silences that concern an app."""

    def end(self, app: App, identifier: str, now_ms: int) -> None:
        """End a silence of the app; raises 403 for one of the organisation."""
        silence = silence_of(app, identifier)
        if not is_of_app(read_matchers(silence.matchers), app.name):
            raise PermissionDenied(
                "This silence concerns other apps, too: it is ended under Alerts, Silences, or by"
                f" /api/v1/organisations/{app.organisation_id}/silences/{silence.pk}."
            )
        actor = self.actor()
        actions.end_silence(silence, by=actor.person, now_ms=now_ms, name=actor.name)


class AlertmanagerSilences(SilenceOperation):
    """The silences that concern an app."""

    @extend_schema(
        operation_id="alertmanager_silences",
        tags=[TAG],
        parameters=[FilterQuery],
        responses={200: GettableSilenceSerializer(many=True), **failures(400, 401, 404)},
    )
    def get(self, request: Request) -> Response:
        """Those of the organisation that can match the app's alerts, the newest 1,000, expired ones too."""
        wanted, app = read_filter(self.validated_query(FilterQuery)["filter"]), self.asked_app()
        rows = Silence.objects.filter(organisation=app.organisation_id).select_related("created_by").order_by("-pk")
        pairs = [(row, read_matchers(row.matchers)) for row in rows[:SILENCES_MAX]]
        pairs = [pair for pair in pairs if concerns(pair[1], app.name)]
        is_chosen = matching([{each.name: each.value for each in matchers} for _, matchers in pairs], wanted)
        now_ms = _clock.now_ms()
        return Response([_entry(*pair, now_ms) for pair, chosen in zip(pairs, is_chosen, strict=True) if chosen])

    @extend_schema(
        operation_id="alertmanager_silence_create",
        tags=[TAG],
        parameters=[AppQuery],
        request=PostableSilenceSerializer,
        responses={200: PostedSilenceSerializer, **failures(400, 401, 403, 404, 422)},
    )
    def post(self, request: Request) -> Response:
        """Create one for the app; for editors. With an ``id``, end that one at the same moment."""
        app, now_ms, actor = self.asked_app(Right.SILENCE), _clock.now_ms(), self.actor()
        body = self.validated_body(PostableSilenceSerializer)
        named = "" if body["createdBy"] == _SOMEBODY else body["createdBy"]  # amtool sends back what it has read
        comment = " — ".join(part for part in (body["comment"], named) if part)
        with transaction.atomic():
            if body["id"]:
                self.end(app, body["id"], now_ms)
            silence = actions.add_silence(
                app.organisation,
                matchers_text(body["matchers"], app.name),
                from_ms=max(_ms(body["startsAt"]), now_ms),
                to_ms=_ms(body["endsAt"]),
                comment=comment[:_COMMENT_CHARS_MAX],
                by=actor.person,
                now_ms=now_ms,
                name=actor.name,
            )
        return Response({"silenceID": silence_id(silence.pk)})


class AlertmanagerSilence(SilenceOperation):
    """One silence that concerns an app."""

    @extend_schema(
        operation_id="alertmanager_silence",
        tags=[TAG],
        parameters=[AppQuery],
        responses={200: GettableSilenceSerializer, **failures(400, 401, 404)},
    )
    def get(self, request: Request, silence: str) -> Response:
        """It, even when it has expired."""
        row = silence_of(self.asked_app(), silence)
        return Response(_entry(row, read_matchers(row.matchers), _clock.now_ms()))

    @extend_schema(
        operation_id="alertmanager_silence_expire",
        tags=[TAG],
        parameters=[AppQuery],
        responses={200: None, **failures(400, 401, 403, 404)},
    )
    def delete(self, request: Request, silence: str) -> Response:
        """End it now, for editors."""
        self.end(self.asked_app(Right.SILENCE), silence, _clock.now_ms())
        return Response(status=status.HTTP_200_OK)


def silence_of(app: App, identifier: str) -> Silence:
    """Return the silence with this UUID that concerns the app; 404 if there is none."""
    try:
        number = int(UUID(identifier).hex)
    except ValueError as error:
        raise Http404("There is no such silence.") from error
    silence = row_of(Silence.objects.filter(organisation=app.organisation_id).select_related("created_by"), number)
    if not concerns(read_matchers(silence.matchers), app.name):
        raise Http404("There is no such silence.")
    return silence


def matchers_text(matchers: Sequence[Mapping[str, Any]], app: str) -> str:
    """Write matchers as silences have them, with one that names the app."""
    wanted = [Matcher(each["name"], _OPS[each["isEqual"], each["isRegex"]], each["value"]) for each in matchers]
    if not is_of_app(tuple(wanted), app):
        wanted.append(Matcher(APP_LABEL, "=", app))
    return ", ".join(map(matcher_text, wanted))


def matcher_text(matcher: Matcher) -> str:
    """Write one matcher as PromQL and Alertmanager read it."""
    escaped = matcher.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{matcher.name}{matcher.op}"{escaped}"'


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _entry(row: Silence, matchers: Matchers, now_ms: int) -> dict[str, Any]:
    state = "pending" if now_ms < row.from_ms else "active" if now_ms < row.to_ms else "expired"
    return {
        "id": silence_id(row.pk),
        "status": {"state": state},
        "matchers": [
            {
                "name": each.name,
                "value": each.value,
                "isRegex": each.op.endswith("~"),
                "isEqual": not each.op.startswith("!"),
            }
            for each in matchers
        ],
        "startsAt": rfc3339(row.from_ms),
        "endsAt": rfc3339(row.to_ms),
        "updatedAt": rfc3339(row.created_ms),
        "createdBy": row.created_by.get_username() if row.created_by else _SOMEBODY,
        "comment": row.comment,
    }
