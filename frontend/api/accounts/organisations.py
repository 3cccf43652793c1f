"""Organisations for programs that act for a person: members, invitations, audit log, usage.

An operation needs a person's session, since a token belongs to one app. The rights are those of the pages.
"""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.base import FailureSerializer, Operation, row_of
from frontend.pages.organisation.audit import entries_of
from frontend.pages.organisation.invitation_mail import send_invitation
from frontend.pages.organisation.usage import usage_of
from spm.accounts.access import require_organisation
from spm.accounts.models import AuditEntry, Invitation, Membership, Organisation
from spm.accounts.organisations import invitations, members, rights, settings
from spm.accounts.organisations.rights import Right

_READ = {401: FailureSerializer, 403: FailureSerializer, 404: FailureSerializer}
_WRITE = {**_READ, 400: FailureSerializer, 409: FailureSerializer, 422: FailureSerializer}
AUDIT_PAGE = 100
ROLES = [role.value for role in rights.ROLES]


class OrganisationSerializer(serializers.ModelSerializer[Organisation]):
    """An organisation."""

    class Meta:
        model = Organisation
        fields = ["id", "name", "created"]
        read_only_fields = ["id", "created"]


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A person of an organisation."""

    login = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = Membership
        fields = ["id", "login", "role", "created"]
        read_only_fields = ["id", "created"]


class RoleSerializer(serializers.Serializer[dict[str, Any]]):
    """A role to give."""

    role = serializers.ChoiceField(ROLES)


class InviteSerializer(serializers.Serializer[dict[str, Any]]):
    """Whom to invite, as what."""

    email = serializers.EmailField()
    role = serializers.ChoiceField(ROLES)


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    """An open invitation. Its secret is in the mail alone."""

    class Meta:
        model = Invitation
        fields = ["id", "email", "role", "created", "expires"]


class AuditQuery(serializers.Serializer[dict[str, Any]]):
    """Which entries."""

    who = serializers.CharField(required=False, max_length=120, help_text="a part of the person's name")
    what = serializers.CharField(required=False, max_length=120, help_text="a part of the action or its subject")
    since = serializers.DateField(required=False)
    until = serializers.DateField(required=False)
    before = serializers.IntegerField(
        required=False, min_value=0, max_value=(1 << 62), help_text="older than this entry"
    )


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """One entry of the audit log."""

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor_name", "action", "subject", "address", "detail"]


class UsageSerializer(serializers.Serializer[Any]):
    """What one app uses."""

    app = serializers.IntegerField(source="app.pk")
    name = serializers.CharField(source="app.name")
    series = serializers.IntegerField(source="quota.series", allow_null=True)
    series_max = serializers.IntegerField(source="quota.series_max")
    samples_per_s_max = serializers.IntegerField(source="quota.samples_per_s", allow_null=True)
    sources = serializers.IntegerField()
    tokens = serializers.IntegerField()


class OrganisationOperation(Operation):
    """An operation on an organisation, for a person who is logged in."""

    def membership(self, organisation_id: int, right: Right) -> Membership:
        """The person's membership, if it gives the right."""
        if not isinstance(self.request.user, User):
            raise PermissionDenied("This needs a person who is logged in: a token belongs to one app.")
        return require_organisation(self.request.user, organisation_id, right)

    def row(self, model: Any, own: Membership, number: int) -> Any:
        """The organisation's row of this number; 404 for one of another organisation."""
        return row_of(model.objects.filter(organisation=own.organisation), number)


class Organisations(OrganisationOperation):
    """The organisations of the person."""

    @extend_schema(operation_id="organisations", responses={200: OrganisationSerializer(many=True), **_READ})
    def get(self, request: Request) -> Response:
        """All of them, by name."""
        if not isinstance(request.user, User):
            raise PermissionDenied("This needs a person who is logged in: a token belongs to one app.")
        rows = Organisation.objects.filter(memberships__user=request.user, going=None)
        return Response(OrganisationSerializer(rows, many=True).data)


class OneOrganisation(OrganisationOperation):
    """One organisation."""

    @extend_schema(
        operation_id="organisation_rename",
        request=OrganisationSerializer,
        responses={200: OrganisationSerializer, **_WRITE},
    )
    def patch(self, request: Request, organisation_id: int) -> Response:
        """Rename it; for admins."""
        own = self.membership(organisation_id, Right.RENAME)
        settings.rename(own.user, own.organisation, self.validated_body(OrganisationSerializer)["name"])
        own.organisation.refresh_from_db()
        return Response(OrganisationSerializer(own.organisation).data)


class Members(OrganisationOperation):
    """The people of an organisation."""

    @extend_schema(operation_id="members", responses={200: MemberSerializer(many=True), **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """All of them."""
        own = self.membership(organisation_id, Right.SEE_MEMBERS)
        rows = Membership.objects.filter(organisation=own.organisation).select_related("user").order_by("pk")
        return Response(MemberSerializer(rows, many=True).data)


class OneMember(OrganisationOperation):
    """One member."""

    @extend_schema(operation_id="member_role", request=RoleSerializer, responses={200: MemberSerializer, **_WRITE})
    def patch(self, request: Request, organisation_id: int, number: int) -> Response:
        """Give another role; for admins, and nobody gives a role above their own."""
        own = self.membership(organisation_id, Right.MANAGE_MEMBERS)
        member = self.row(Membership, own, number)
        members.change_role(own, member, self.validated_body(RoleSerializer)["role"])
        return Response(MemberSerializer(self.row(Membership, own, number)).data)

    @extend_schema(operation_id="member_remove", request=None, responses={204: None, **_WRITE})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Take the member out, for admins; or leave oneself."""
        own = self.membership(organisation_id, Right.LEAVE)
        if own.pk == number:
            members.leave(own)
        else:
            own = self.membership(organisation_id, Right.MANAGE_MEMBERS)
            members.remove(own, self.row(Membership, own, number))
        return Response(status=status.HTTP_204_NO_CONTENT)


class Invitations(OrganisationOperation):
    """The open invitations."""

    @extend_schema(operation_id="invitations", responses={200: InvitationSerializer(many=True), **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """All of them, newest first; for admins."""
        own = self.membership(organisation_id, Right.INVITE)
        return Response(InvitationSerializer(invitations.pending(own.organisation), many=True).data)

    @extend_schema(operation_id="invite", request=InviteSerializer, responses={201: InvitationSerializer, **_WRITE})
    def post(self, request: Request, organisation_id: int) -> Response:
        """Send a mail with a link that is good for a week, once; for admins."""
        own, body = self.membership(organisation_id, Right.INVITE), self.validated_body(InviteSerializer)
        invitation = send_invitation(own, body["email"].lower(), body["role"])
        return Response(InvitationSerializer(invitation).data, status=status.HTTP_201_CREATED)


class OneInvitation(OrganisationOperation):
    """One open invitation."""

    @extend_schema(operation_id="invitation_revoke", request=None, responses={204: None, **_WRITE})
    def delete(self, request: Request, organisation_id: int, number: int) -> Response:
        """Take it back; for admins."""
        own = self.membership(organisation_id, Right.INVITE)
        invitations.revoke(own, self.row(Invitation, own, number))
        return Response(status=status.HTTP_204_NO_CONTENT)


class Audit(OrganisationOperation):
    """The audit log."""

    @extend_schema(
        operation_id="audit",
        parameters=[AuditQuery],
        responses={200: AuditSerializer(many=True), 400: FailureSerializer, **_READ},
    )
    def get(self, request: Request, organisation_id: int) -> Response:
        """A hundred entries, newest first; for owners. ``before`` continues."""
        own, query = self.membership(organisation_id, Right.SEE_AUDIT), self.validated_query(AuditQuery)
        given = {name: str(value) for name, value in query.items()}
        return Response(AuditSerializer(entries_of(own.organisation, given)[:AUDIT_PAGE], many=True).data)


class Usage(OrganisationOperation):
    """What the apps use."""

    @extend_schema(operation_id="usage", responses={200: UsageSerializer(many=True), **_READ})
    def get(self, request: Request, organisation_id: int) -> Response:
        """Each app with its quotas."""
        own = self.membership(organisation_id, Right.SEE_USAGE)
        return Response(UsageSerializer(usage_of(own.organisation), many=True).data)
