"""The interface of agents: they register and send heartbeats; people and programs list them and push settings.

An agent shows its own token with the scope ``ingest``. The token names its app, and here allows nothing but to report
about itself.
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

from frontend.api.base import FailureSerializer, Operation, Program, TokenAuthentication
from ingest.agent.version import VERSION
from ingest.models import AgentSettings
from ingest.senders import agents
from spm.accounts import tokens
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.accounts.tokens import Principal
from spm.clock import SystemClock
from spm.limits import AGENT_TARGETS_MAX, SOURCE_BYTES_MAX, SOURCE_PERIOD_MAX_MS, TIME_MAX_MS

_clock = SystemClock()
_READ = {401: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 403: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}
_BEAT = {400: FailureSerializer, 401: FailureSerializer, 422: FailureSerializer}
_COUNT_MAX = (1 << 62) - 1


class AgentAuthentication(BaseAuthentication):
    """Authenticates by a token that may send."""

    def authenticate(self, request: Request) -> tuple[Program, Principal] | None:
        """Return the program and what its token allows."""
        secret = tokens.from_request(request._request)
        principal = tokens.authenticate(secret, "ingest") if secret else None
        if secret and principal is None:
            raise AuthenticationFailed("The token is unknown, revoked, or lacks the scope ingest.")
        return (Program(), principal) if principal else None

    def authenticate_header(self, request: Request) -> str:
        """Turn missing credentials into 401."""
        return 'Bearer realm="spm"'


class AgentScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base is untyped
    """Describes the authentication in the schema."""

    target_class = AgentAuthentication
    name = "agentToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Describe a bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token of an app with the scope ingest."}


class TextMapField(serializers.DictField):
    """Short texts by short names, a bounded number of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=serializers.CharField(max_length=300, allow_blank=True), required=False, **options)

    def to_internal_value(self, data: Any) -> Any:
        """Return the texts; refuses names that no page could show."""
        texts = super().to_internal_value(data)
        if len(texts) > 2 * AGENT_TARGETS_MAX or any(len(name) > 200 or not name.isprintable() for name in texts):
            raise serializers.ValidationError(f"At most {2 * AGENT_TARGETS_MAX} entries with printable names.")
        return texts


class HeartbeatSerializer(serializers.Serializer[dict[str, Any]]):
    """The state of an agent. Times are ms by its own clock."""

    name = serializers.CharField(max_length=SOURCE_BYTES_MAX, help_text="of its host, and of the source of its data")
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
    tags = TextMapField(default=dict)
    collectors = TextMapField(default=dict)
    etag = serializers.CharField(max_length=32, required=False, default="", allow_blank=True)
    refused = TextMapField(default=dict)

    def validate_name(self, name: str) -> str:
        """Check the name, which is also the name of a source."""
        if not name.isprintable() or len(name.encode()) > SOURCE_BYTES_MAX:
            raise serializers.ValidationError(f"At most {SOURCE_BYTES_MAX} printable bytes.")
        return name


class ReplySerializer(serializers.Serializer[Any]):
    """The answer to an agent; ``settings`` are missing if the agent's are right."""

    server_ms = serializers.IntegerField()
    version = serializers.CharField(help_text="of the server; agents may be newer")
    etag = serializers.CharField(allow_blank=True)
    settings = serializers.DictField(required=False)


class AboutSerializer(serializers.Serializer[Any]):
    """The app of a token, and the server's time."""

    server_ms = serializers.IntegerField()
    version = serializers.CharField()
    app = serializers.CharField()
    app_id = serializers.IntegerField()


class AgentSerializer(serializers.Serializer[Any]):
    """An agent and its health."""

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
    two_of_this_name = serializers.BooleanField(source="is_duplicate", help_text="their values are mixed")
    tags = serializers.DictField(source="agent.tags")
    collectors = serializers.DictField(source="agent.collectors")
    refused_settings = serializers.DictField(source="agent.refused")
    settings_applied = serializers.BooleanField(source="has_pushed_settings")


class PushedSerializer(serializers.ModelSerializer[AgentSettings]):
    """Settings pushed to some agents."""

    class Meta:
        model = AgentSettings
        fields = ["match", "settings", "changed", "changed_by"]


class PushSerializer(serializers.Serializer[dict[str, Any]]):
    """Settings to push and the agents they are for; empty settings end the push."""

    match = serializers.CharField(max_length=300, help_text="*, tag=value, or an agent's name")
    settings = serializers.DictField(help_text="period_s, tags, off, discover")


class AgentOperation(Operation):
    """An operation that agents call with their own token."""

    authentication_classes = [AgentAuthentication]

    def token_app(self) -> App:
        """Return the app of the token; 401 without a token."""
        principal = self.request.auth
        assert isinstance(principal, Principal), "BUG: an agent called without a token"
        return App.objects.get(pk=principal.app_id)

    def record_heartbeat(self) -> tuple[agents.HeartbeatReply, dict[str, Any]]:
        """Record the heartbeat of the body; returns the reply and its JSON fields."""
        now_ms = _clock.now_ms()
        reply = agents.record_heartbeat(self.token_app().pk, self.validated_body(HeartbeatSerializer), now_ms)
        fields: dict[str, Any] = {"server_ms": now_ms, "version": VERSION, "etag": reply.etag}
        return reply, fields if reply.settings is None else {**fields, "settings": reply.settings}


class Agents(AgentOperation):
    """The agents of a token's app."""

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Reading needs a token that may read; registering needs one that may send."""
        is_reading = self.request is not None and self.request.method == "GET"
        return [TokenAuthentication()] if is_reading else [AgentAuthentication()]

    @extend_schema(operation_id="agents", responses={200: AgentSerializer(many=True), **_READ})
    def get(self, request: Request) -> Response:
        """All agents, those in trouble first. For a token with the scope read."""
        return Response(AgentSerializer(agents.list_health(self.app(None), _clock.now_ms()), many=True).data)

    @extend_schema(
        operation_id="agent_register",
        request=HeartbeatSerializer,
        responses={200: ReplySerializer, 201: ReplySerializer, **_BEAT},
    )
    def post(self, request: Request) -> Response:
        """Register an agent at its start: 201 if it was not known."""
        reply, fields = self.record_heartbeat()
        return Response(fields, status=status.HTTP_201_CREATED if reply.new else status.HTTP_200_OK)


class Heartbeat(AgentOperation):
    """The heartbeat of an agent."""

    @extend_schema(
        operation_id="agent_heartbeat", request=HeartbeatSerializer, responses={200: ReplySerializer, **_BEAT}
    )
    def post(self, request: Request) -> Response:
        """Report the state of the agent, every half minute; the answer may hold new settings."""
        return Response(self.record_heartbeat()[1])


class About(AgentOperation):
    """Facts about the server for agents."""

    @extend_schema(operation_id="agent_version", responses={200: AboutSerializer, 401: FailureSerializer})
    def get(self, request: Request) -> Response:
        """The server's version and time, and the app of the token; for `spm-agent doctor`."""
        app = self.token_app()
        return Response({"server_ms": _clock.now_ms(), "version": VERSION, "app": app.name, "app_id": app.pk})


class AppAgents(Operation):
    """The agents of an app."""

    @extend_schema(operation_id="app_agents", responses={200: AgentSerializer(many=True), **_READ})
    def get(self, request: Request, app_id: int) -> Response:
        """All agents, those in trouble first."""
        return Response(AgentSerializer(agents.list_health(self.app(app_id), _clock.now_ms()), many=True).data)


class OneAgent(Operation):
    """One agent of an app."""

    @extend_schema(operation_id="app_agent", responses={200: AgentSerializer, **_READ})
    def get(self, request: Request, app_id: int, agent: str) -> Response:
        """One agent and its health."""
        matching = [s for s in agents.list_health(self.app(app_id), _clock.now_ms()) if s.agent.name == agent]
        if not matching:
            raise Http404("There is no such agent in this app.")
        return Response(AgentSerializer(matching[0]).data)

    @extend_schema(operation_id="agent_forget", responses={204: None, **_READ, 403: FailureSerializer})
    def delete(self, request: Request, app_id: int, agent: str) -> Response:
        """Remove an agent from the list; it returns with its next heartbeat, and its data stays. For editors."""
        app, by = self.app(app_id, Right.FORGET_AGENT), self.actor()
        if not agents.forget_agent(app, agent, actor=by.person, by=by.name):
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
        app, by, body = self.app(app_id, Right.PUSH_AGENT_SETTINGS), self.actor(), self.validated_body(PushSerializer)
        agents.push_settings(app, body["match"], body["settings"], actor=by.person, by=by.name, now_ms=_clock.now_ms())
        return Response(PushedSerializer(AgentSettings.objects.filter(app=app), many=True).data)
