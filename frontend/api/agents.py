"""Our agents: what they say (register, heartbeat), and what people and programs see of them.

An agent shows its own token, scope ``ingest``: that says whose it is, and lets it do nothing here but speak of itself.
"""

from typing import Any

from django.http import Http404
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.authentication import Program, TokenAuthentication
from frontend.api.base import FailureSerializer, Operation
from ingest.agent.version import VERSION
from ingest.models import AgentSettings
from ingest.senders import agents
from spm.accounts import tokens
from spm.accounts.models import App, Role
from spm.accounts.tokens import Principal
from spm.clock import SystemClock
from spm.limits import AGENT_TARGETS_MAX, SOURCE_BYTES_MAX, SOURCE_PERIOD_MAX_MS, TIME_MAX_MS

_clock = SystemClock()
_READ = {401: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}
_BEAT = {400: FailureSerializer, 401: FailureSerializer, 422: FailureSerializer}
_COUNT_MAX = (1 << 62) - 1


class AgentAuthentication(BaseAuthentication):
    """By a token that may send."""

    def authenticate(self, request: Request) -> tuple[Program, Principal] | None:
        """The program and what its token speaks for."""
        secret = tokens.from_request(request._request)
        principal = tokens.authenticate(secret, "ingest") if secret else None
        if secret and principal is None:
            raise AuthenticationFailed("The token is unknown, revoked, or lacks the scope ingest.")
        return (Program(), principal) if principal else None

    def authenticate_header(self, request: Request) -> str:
        """Makes missing credentials a 401."""
        return 'Bearer realm="spm"'


class AgentScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base is untyped
    """How the schema describes it."""

    target_class = AgentAuthentication
    name = "agentToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """A bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token of an app with the scope ingest."}


class _Words(serializers.DictField):
    """Short texts by short names, a few of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=serializers.CharField(max_length=300, allow_blank=True), required=False, **options)

    def to_internal_value(self, data: Any) -> Any:
        """As told, without what no page could show."""
        found = super().to_internal_value(data)
        if len(found) > 2 * AGENT_TARGETS_MAX or any(len(name) > 200 or not name.isprintable() for name in found):
            raise serializers.ValidationError(f"At most {2 * AGENT_TARGETS_MAX} entries with printable names.")
        return found


class HeartbeatSerializer(serializers.Serializer[dict[str, Any]]):
    """How an agent does. Times are ms by its own clock."""

    name = serializers.CharField(max_length=SOURCE_BYTES_MAX, help_text="of its host: the source its data comes from")
    version = serializers.CharField(max_length=40, required=False, default="")
    platform = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)
    period_ms = serializers.IntegerField(min_value=1, max_value=SOURCE_PERIOD_MAX_MS)
    started_ms = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    now_ms = serializers.IntegerField(min_value=0, max_value=TIME_MAX_MS)
    spool = serializers.RegexField(r"\A[0-9a-f]{0,12}\Z", required=False, default="", allow_blank=True)
    sequence = serializers.IntegerField(min_value=0, max_value=_COUNT_MAX, default=0)
    spooled = serializers.IntegerField(min_value=0, max_value=_COUNT_MAX, default=0)
    oldest_ms = serializers.IntegerField(min_value=0, max_value=_COUNT_MAX, default=0)
    dropped_messages = serializers.IntegerField(min_value=0, max_value=_COUNT_MAX, default=0)
    dropped_samples = serializers.IntegerField(min_value=0, max_value=_COUNT_MAX, default=0)
    tags = _Words(default=dict)
    collectors = _Words(default=dict)
    etag = serializers.CharField(max_length=32, required=False, default="", allow_blank=True)
    refused = _Words(default=dict)

    def validate_name(self, name: str) -> str:
        """As sources are named."""
        if not name.isprintable() or len(name.encode()) > SOURCE_BYTES_MAX:
            raise serializers.ValidationError(f"At most {SOURCE_BYTES_MAX} printable bytes.")
        return name


class ReplySerializer(serializers.Serializer[Any]):
    """What an agent is answered; without ``settings`` it has the right ones."""

    server_ms = serializers.IntegerField()
    version = serializers.CharField(help_text="of the server: newer agents may know more")
    etag = serializers.CharField(allow_blank=True)
    settings = serializers.DictField(required=False)


class AboutSerializer(serializers.Serializer[Any]):
    """Whose a token is, and what time it is here."""

    server_ms = serializers.IntegerField()
    version = serializers.CharField()
    app = serializers.CharField()
    app_id = serializers.IntegerField()


class AgentSerializer(serializers.Serializer[Any]):
    """An agent, and how it stands."""

    name = serializers.CharField(source="agent.name")
    state = serializers.CharField(help_text="up, late or gone; by heartbeats and data")
    why = serializers.CharField()
    version = serializers.CharField(source="agent.version")
    platform = serializers.CharField(source="agent.platform")
    period_ms = serializers.IntegerField(source="agent.period_ms")
    started = serializers.DateTimeField(source="agent.started")
    first_seen = serializers.DateTimeField(source="agent.first_seen")
    last_heartbeat_ms = serializers.IntegerField(source="beat_ms")
    last_data_ms = serializers.IntegerField(source="data_ms", help_text="0: never")
    waiting_messages = serializers.IntegerField(source="agent.spooled")
    lag_ms = serializers.IntegerField(source="agent.oldest_ms")
    dropped_messages = serializers.IntegerField(source="agent.dropped_messages")
    dropped_samples = serializers.IntegerField(source="agent.dropped_samples")
    sequence = serializers.IntegerField(source="agent.sequence")
    clock_ahead_ms = serializers.IntegerField(source="agent.offset_ms", allow_null=True)
    two_of_this_name = serializers.BooleanField(source="doubled", help_text="their values are mixed")
    tags = serializers.DictField(source="agent.tags")
    collectors = serializers.DictField(source="agent.collectors")
    refused_settings = serializers.DictField(source="agent.refused")
    settings_applied = serializers.BooleanField(source="settled")


class PushedSerializer(serializers.ModelSerializer[AgentSettings]):
    """Settings pushed to some agents."""

    class Meta:
        model = AgentSettings
        fields = ["match", "settings", "changed", "changed_by"]


class PushSerializer(serializers.Serializer[dict[str, Any]]):
    """What to push to whom; empty settings push nothing any more."""

    match = serializers.CharField(max_length=300, help_text="*, tag=value, or an agent's name")
    settings = serializers.DictField(help_text="period_s, tags, off, discover")


class _Speaking(Operation):
    """What agents say with their own token."""

    authentication_classes = [AgentAuthentication]

    def speaker(self) -> App:
        """The app of the token; 401 where there is none."""
        principal = self.request.auth
        assert isinstance(principal, Principal), "BUG: an agent spoke without a token"
        return App.objects.get(pk=principal.app_id)

    def heard(self) -> tuple[agents.Reply, dict[str, Any]]:
        """Note the heartbeat of the body; what to answer."""
        now_ms = _clock.now_ms()
        reply = agents.beat(self.speaker().pk, self.asked(HeartbeatSerializer), now_ms)
        told: dict[str, Any] = {"server_ms": now_ms, "version": VERSION, "etag": reply.etag}
        return reply, told if reply.settings is None else {**told, "settings": reply.settings}


class Agents(_Speaking):
    """The agents of a token's app."""

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Looking takes a token that may read; speaking one that may send."""
        looking = self.request is not None and self.request.method == "GET"
        return [TokenAuthentication()] if looking else [AgentAuthentication()]

    @extend_schema(operation_id="agents", responses={200: AgentSerializer(many=True), **_READ})
    def get(self, request: Request) -> Response:
        """All of them, those in trouble first. For a token with the scope read."""
        return Response(AgentSerializer(agents.standings(self.app(None), _clock.now_ms()), many=True).data)

    @extend_schema(
        operation_id="agent_register",
        request=HeartbeatSerializer,
        responses={200: ReplySerializer, 201: ReplySerializer, **_BEAT},
    )
    def post(self, request: Request) -> Response:
        """Say that there is this agent, at its start: 201 if it was not known."""
        reply, told = self.heard()
        return Response(told, status=status.HTTP_201_CREATED if reply.new else status.HTTP_200_OK)


class Heartbeat(_Speaking):
    """The heartbeat of an agent."""

    @extend_schema(
        operation_id="agent_heartbeat", request=HeartbeatSerializer, responses={200: ReplySerializer, **_BEAT}
    )
    def post(self, request: Request) -> Response:
        """Say how it does, every half minute; settings come back when it should have others."""
        return Response(self.heard()[1])


class About(_Speaking):
    """What an agent should know of the server."""

    @extend_schema(operation_id="agent_version", responses={200: AboutSerializer, 401: FailureSerializer})
    def get(self, request: Request) -> Response:
        """The server's version and time, and the app of the token; for `spm-agent doctor`."""
        app = self.speaker()
        return Response({"server_ms": _clock.now_ms(), "version": VERSION, "app": app.name, "app_id": app.pk})


class AppAgents(Operation):
    """The agents of an app."""

    @extend_schema(operation_id="app_agents", responses={200: AgentSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """All of them, those in trouble first."""
        return Response(AgentSerializer(agents.standings(self.app(app_id), _clock.now_ms()), many=True).data)


class OneAgent(Operation):
    """One agent of an app."""

    @extend_schema(operation_id="app_agent", responses={200: AgentSerializer, **_READ})
    def get(self, request: Request, app_id: int, agent: str) -> Response:
        """How it stands."""
        found = [s for s in agents.standings(self.app(app_id), _clock.now_ms()) if s.agent.name == agent]
        if not found:
            raise Http404("There is no such agent in this app.")
        return Response(AgentSerializer(found[0]).data)

    @extend_schema(operation_id="agent_forget", responses={204: None, **_READ, 403: FailureSerializer})
    def delete(self, request: Request, app_id: int, agent: str) -> Response:
        """Take it off the list; it comes back with its next heartbeat, and its data stays. For editors."""
        app, by = self.app(app_id, Role.EDITOR), self.actor()
        if not agents.forget(app, agent, actor=by.person, by=by.name):
            raise Http404("There is no such agent in this app.")
        return Response(status=status.HTTP_204_NO_CONTENT)


class PushedSettings(Operation):
    """The settings that the server pushes to agents."""

    @extend_schema(operation_id="agent_settings", responses={200: PushedSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """All entries."""
        return Response(PushedSerializer(AgentSettings.objects.filter(app=self.app(app_id)), many=True).data)

    @extend_schema(
        operation_id="agent_settings_push",
        request=PushSerializer,
        responses={200: PushedSerializer(many=True), **_WRITE},
    )
    def put(self, request: Request, app_id: int) -> Response:
        """Set one entry, in force from the agents' next heartbeat on; for admins."""
        app, by, asked = self.app(app_id, Role.ADMIN), self.actor(), self.asked(PushSerializer)
        agents.push(app, asked["match"], asked["settings"], actor=by.person, by=by.name, now_ms=_clock.now_ms())
        return Response(PushedSerializer(AgentSettings.objects.filter(app=app), many=True).data)
