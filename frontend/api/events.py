"""Events of an app: writing them, and the consumer groups that read them. Reading itself is in ``frontend.events``."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation, PersonAuthentication, TokenAuthentication, TokenScheme
from frontend.events.rights import app_number
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.accounts.tokens import Principal
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.events import groups, limits, log, outbox, relay
from spm.events.errors import PositionGone
from spm.events.models import Consumer, ConsumerGroup
from spm.events.outbox import Draft, Place
from spm.limits import TIME_MAX_MS

_clock = SystemClock()
_FAILURES = dict.fromkeys((400, 401, 403, 404, 409, 410, 422, 503), FailureSerializer)
_APP = OpenApiParameter("app", OpenApiTypes.INT, description="The app, for a session; a token has its own.")


class EventSerializer(serializers.Serializer[dict[str, Any]]):
    """An event to be written."""

    app = serializers.IntegerField(required=False, help_text="for a session; a token has its own app")
    id = serializers.CharField(
        required=False, max_length=limits.EVENT_ID_CHARS_MAX, help_text="yours; the same id again is the same event"
    )
    kind = serializers.RegexField(r"^[a-z][a-z0-9_.-]*$", max_length=limits.KIND_CHARS_MAX, help_text="deploy, note, …")
    text = serializers.CharField(max_length=limits.TEXT_CHARS_MAX)
    key = serializers.CharField(
        required=False, max_length=limits.KEY_CHARS_MAX, help_text="events of one key are consumed in order; the kind"
    )
    at_ms = serializers.IntegerField(
        required=False, min_value=0, max_value=TIME_MAX_MS, help_text="ms since 1970; now. Give it when you give an id."
    )
    end_ms = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=TIME_MAX_MS)
    link = serializers.URLField(required=False, max_length=limits.LINK_CHARS_MAX)
    body = serializers.DictField(required=False, help_text="any facts, at most 4 kB")


class WrittenSerializer(serializers.Serializer[dict[str, Any]]):
    """A written event."""

    id = serializers.CharField()
    stream_position = serializers.IntegerField(allow_null=True, help_text="null: it gets one within seconds")


class EventTokenAuthentication(TokenAuthentication):
    """Tokens that may write events."""

    scope = "events"


class EventTokenScheme(TokenScheme):  # type: ignore[no-untyped-call]  # its base is untyped
    """Describes the authentication in the schema."""

    target_class = EventTokenAuthentication
    priority = 1  # before that of all tokens
    name = "eventToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Describe a bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "A token of an app with the scope events or write."}


class StreamOperation(Operation):
    """An operation on the stream of an app's organisation."""

    def place(self, app: App) -> Place:
        """Return whose events these are."""
        return Place(app.organisation_id, app.pk)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer a position that is gone with the oldest one."""
        if isinstance(exc, PositionGone):
            return Response({"error": str(exc), "oldest": exc.oldest}, status=status.HTTP_410_GONE, exception=True)
        return super().handle_exception(exc)


class PostEvent(StreamOperation):
    """Writing an event."""

    authentication_classes = [EventTokenAuthentication, PersonAuthentication]

    def may(self, app: App, right: Right) -> bool:
        """Whether the caller may write events: the scope events is enough."""
        principal = self.request.auth
        return principal.may("events") if isinstance(principal, Principal) else super().may(app, right)

    @extend_schema(
        operation_id="post_event",
        request=EventSerializer,
        responses={201: WrittenSerializer, 200: WrittenSerializer, **_FAILURES},
    )
    def post(self, request: Request) -> Response:
        """Write an event: 201, or 200 where the id is there already with this content."""
        begun_s, now_ms = _clock.monotonic(), _clock.now_ms()
        values = self.validated_body(EventSerializer)
        app = self.app(values.pop("app", None), Right.POST_EVENT)
        values |= {"at_ms": values.get("at_ms", now_ms), "event_id": values.pop("id", "")}
        if (values.get("end_ms") or values["at_ms"]) < values["at_ms"]:
            raise BadQuery(f"end_ms={values['end_ms']} is before at_ms={values['at_ms']}")
        place = self.place(app)
        event, is_new = outbox.post(place, Draft(author=self.actor().name, **values), _clock, begun_s)
        relay.advance(place.organisation)
        event.refresh_from_db(fields=["position"])
        answer = {"id": event.event_id, "stream_position": event.position}
        return Response(answer, status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class GroupDraftSerializer(serializers.Serializer[dict[str, Any]]):
    """The settings of a group; they never change."""

    partition_by = serializers.CharField(default="key", max_length=64, help_text="key, kind, author, text or body.NAME")
    kinds = serializers.ListField(child=serializers.CharField(max_length=limits.KIND_CHARS_MAX), default=list)
    partitions = serializers.IntegerField(default=limits.PARTITIONS, min_value=1, max_value=limits.PARTITIONS_MAX)
    stream_position = serializers.CharField(default="newest", max_length=20, help_text="a number, oldest or newest")


class ConsumerSerializer(serializers.Serializer[Any]):
    """A consumer and what it holds."""

    consumer = serializers.CharField(source="name")
    fence = serializers.IntegerField()
    lease_s = serializers.IntegerField()
    lease_until_ms = serializers.IntegerField()
    partitions = serializers.SerializerMethodField()

    def get_partitions(self, consumer: Consumer) -> list[int]:
        """The numbers of its partitions."""
        return [*consumer.partitions.values_list("number", flat=True)]


class GroupSerializer(serializers.Serializer[dict[str, Any]]):
    """A group, and how far it is."""

    name = serializers.CharField()
    partition_by = serializers.CharField()
    kinds = serializers.ListField(child=serializers.CharField())
    partitions = serializers.DictField(child=serializers.IntegerField(), help_text="position by number")
    lag = serializers.IntegerField(help_text="positions that the slowest partition is behind the newest event")
    consumers = ConsumerSerializer(many=True)


class JoinSerializer(serializers.Serializer[dict[str, Any]]):
    """How long a consumer may be silent."""

    lease_s = serializers.IntegerField(
        default=limits.LEASE_S, min_value=limits.LEASE_S_MIN, max_value=limits.LEASE_S_MAX
    )


class FetchSerializer(serializers.Serializer[dict[str, Any]]):
    """How many events a consumer wants."""

    max = serializers.IntegerField(default=100, min_value=1, max_value=limits.PAGE_EVENTS_MAX)


class PositionSerializer(serializers.Serializer[dict[str, Any]]):
    """A position of the stream."""

    stream_position = serializers.CharField(max_length=20)


class GroupOperation(StreamOperation):
    """An operation on one consumer group."""

    def group(self, name: str, right: Right = Right.SEE_APP) -> tuple[ConsumerGroup, Place]:
        """Return the group and whose it is; raises ``BadQuery`` for no number, and 404 for what is not there."""
        place = self.group_place(right)
        return groups.find(place, name), place

    def group_place(self, right: Right = Right.SEE_APP) -> Place:
        """Return the app that the caller means."""
        return self.place(self.app(app_number(self.request.query_params.get("app")), right))


@extend_schema(parameters=[_APP])
class Groups(GroupOperation):
    """The groups of an app."""

    @extend_schema(operation_id="consumer_groups", responses={200: GroupSerializer(many=True), **_FAILURES})
    def get(self, request: Request) -> Response:
        """List them."""
        place = self.group_place()
        own = ConsumerGroup.objects.filter(app=place.app)
        return Response([_group_json(each, place) for each in own])


@extend_schema(parameters=[_APP])
class OneGroup(GroupOperation):
    """A group."""

    @extend_schema(operation_id="consumer_group", responses={200: GroupSerializer, **_FAILURES})
    def get(self, request: Request, name: str) -> Response:
        """Show its positions, its lag and its consumers."""
        return Response(_group_json(*self.group(name)))

    @extend_schema(
        operation_id="consumer_group_register",
        request=GroupDraftSerializer,
        responses={201: GroupSerializer, 200: GroupSerializer, **_FAILURES},
    )
    def put(self, request: Request, name: str) -> Response:
        """Register it: 201, or 200 where it is there with these settings."""
        place, values = self.group_place(Right.MANAGE_CONSUMER_GROUPS), self.validated_body(GroupDraftSerializer)
        position = log.position_of(place.organisation, values.pop("stream_position"))
        draft = groups.GroupDraft(name=name, position=position, **values | {"kinds": tuple(values["kinds"])})
        group, is_new = groups.register(place, draft, now_ms=_clock.now_ms())
        code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
        return Response(_group_json(group, place), status=code)

    @extend_schema(operation_id="consumer_group_delete", responses={204: None, **_FAILURES})
    def delete(self, request: Request, name: str) -> Response:
        """Delete it, with its positions."""
        self.group(name, Right.MANAGE_CONSUMER_GROUPS)[0].delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(parameters=[_APP])
class GroupPosition(GroupOperation):
    """Where a group is."""

    @extend_schema(
        operation_id="consumer_group_seek", request=PositionSerializer, responses={200: GroupSerializer, **_FAILURES}
    )
    def put(self, request: Request, name: str) -> Response:
        """Let it go on from another position."""
        group, place = self.group(name, Right.MANAGE_CONSUMER_GROUPS)
        text = self.validated_body(PositionSerializer)["stream_position"]
        groups.seek(group, place, log.position_of(place.organisation, text), now_ms=_clock.now_ms())
        return Response(_group_json(group, place))


@extend_schema(parameters=[_APP])
class Consumers(GroupOperation):
    """The consumers of a group."""

    @extend_schema(
        operation_id="consumer_join", request=JoinSerializer, responses={201: ConsumerSerializer, **_FAILURES}
    )
    def post(self, request: Request, name: str) -> Response:
        """Join; the answer names the consumer."""
        group, _ = self.group(name)
        lease_s = self.validated_body(JoinSerializer)["lease_s"]
        consumer = groups.join(group, lease_s=lease_s, now_ms=_clock.now_ms())
        return Response(ConsumerSerializer(consumer).data, status=status.HTTP_201_CREATED)


@extend_schema(parameters=[_APP])
class OneConsumer(GroupOperation):
    """A consumer."""

    @extend_schema(operation_id="consumer_leave", responses={204: None, **_FAILURES})
    def delete(self, request: Request, name: str, consumer: str) -> Response:
        """Leave: its partitions are free at once."""
        groups.leave(self.group(name)[0], consumer, now_ms=_clock.now_ms())
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(parameters=[_APP])
class Fetch(GroupOperation):
    """The next events of a consumer."""

    @extend_schema(operation_id="consumer_fetch", request=FetchSerializer, responses={200: dict, **_FAILURES})
    def post(self, request: Request, name: str, consumer: str) -> Response:
        """Return events of its partitions; those that it does not commit come again."""
        group, place = self.group(name)
        relay.advance(place.organisation)
        count = self.validated_body(FetchSerializer)["max"]
        fetched = groups.fetch(group, place, consumer, count=count, now_ms=_clock.now_ms())
        return Response(
            {
                "events": [log.as_json(event) for event in fetched.events],
                "stream_position": fetched.through,
                "fence": fetched.fence,
                "partitions": fetched.partitions,
            }
        )


@extend_schema(parameters=[_APP])
class Commit(GroupOperation):
    """What a consumer has done."""

    @extend_schema(operation_id="consumer_commit", request=PositionSerializer, responses={200: dict, **_FAILURES})
    def post(self, request: Request, name: str, consumer: str) -> Response:
        """Note that everything it was given up to a position is done."""
        group, place = self.group(name)
        position = log.position_of(place.organisation, self.validated_body(PositionSerializer)["stream_position"])
        moved = groups.commit(group, consumer, position, now_ms=_clock.now_ms())
        return Response({"stream_position": position, "partitions_moved": moved})


def _group_json(group: ConsumerGroup, place: Place) -> dict[str, Any]:
    partitions = group.partitions.values_list("number", "position")
    return {
        "name": group.name,
        "partition_by": group.partition_by,
        "kinds": group.kinds,
        "partitions": {str(number): position for number, position in partitions},
        "lag": groups.lag_of(group, place.organisation),
        "consumers": ConsumerSerializer(group.consumers.all(), many=True).data,
    }
