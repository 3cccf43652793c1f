"""A person's star on a dashboard by REST: put it on, take it away."""

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from frontend.api.dashboards.documents import READ, DashboardOperation, find
from frontend.dashboards import stars


class DashboardStar(DashboardOperation):
    """The caller's own star."""

    @extend_schema(operation_id="dashboard_star", request=None, responses={204: None, **READ})
    def put(self, request: Request, app_id: int, uid: str) -> Response:
        """Put it on; for people, as a program has no list."""
        return self._set(app_id, uid, starred=True)

    @extend_schema(operation_id="dashboard_unstar", responses={204: None, **READ})
    def delete(self, request: Request, app_id: int, uid: str) -> Response:
        """Take it away; for people."""
        return self._set(app_id, uid, starred=False)

    def _set(self, app_id: int, uid: str, *, starred: bool) -> Response:
        dashboard = find(self.app(app_id), uid)
        if not isinstance(self.request.user, User):
            raise PermissionDenied("A star belongs to a person: log in, as a token has none.")
        stars.set_star(dashboard, self.request.user, starred=starred)
        return Response(status=status.HTTP_204_NO_CONTENT)
