"""Decides which apps a person or a program may see; no other module does.

A foreign app is reported as one that does not exist (404), so that nobody learns which ids are taken. Superusers have
no special access here: they work in the admin. Only the product's own app is readable for all staff. Enter by
``require_app`` for pages, by ``app_of_token`` and ``app_of_person`` for interfaces that take a token or a session.
"""

from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404

from spm.accounts.models import APP_ID_MAX, App, Membership, Role
from spm.accounts.tokens import Principal
from spm.errors import Refused

_RANK = {role.value: rank for rank, role in enumerate((Role.VIEWER, Role.EDITOR, Role.ADMIN, Role.OWNER))}
Person = User | AnonymousUser


def apps_of(user: Person) -> QuerySet[App]:
    """The apps of all organisations the person belongs to; for staff also the product's own app, at the end."""
    if not user.is_authenticated:
        return App.objects.none()
    theirs = Q(organisation__in=Membership.objects.filter(user=user).values("organisation"))
    if user.is_staff:
        theirs |= Q(organisation__internal=True)
    apps = App.objects.filter(theirs, going=None).select_related("organisation")
    return apps.order_by("organisation__internal", "name", "id")


def require_app(user: Person, app_id: int, role: str = Role.VIEWER) -> App:
    """Return the app if the person has at least this role in its organisation; else 404 (foreign) or 403 (low role)."""
    app = apps_of(user).filter(pk=app_id).first() if 1 <= app_id <= APP_ID_MAX else None
    if app is None:
        raise Http404("There is no such app.")
    if not has_role(user, app, role):
        raise PermissionDenied(f"This needs the role {role!r} in {app.organisation}.")
    return app


def has_role(user: Person, app: App, role: str) -> bool:
    """Whether the person's role in the app's organisation is this one or a higher one."""
    own = _membership(user, app.organisation_id)
    if own is None and user.is_staff and app.organisation.internal:
        return str(role) == Role.VIEWER
    return own is not None and _RANK[own.role] >= _RANK[str(role)]


def require_organisation(user: Person, organisation_id: int, role: str = Role.VIEWER) -> Membership:
    """Return the person's membership in the organisation if its role is at least this one."""
    membership = _membership(user, organisation_id)
    if membership is None:
        raise Http404("There is no such organisation.")
    if _RANK[membership.role] < _RANK[str(role)]:
        raise PermissionDenied(f"This needs the role {role!r}.")
    return membership


def require_app_number(number: int) -> App:
    """Return the app of this number, for commands on the machine itself; raise ``Refused``."""
    app = App.objects.select_related("organisation").filter(pk=number, going=None).first()
    if app is None:
        raise Refused(f"there is no app {number}")
    return app


def only_app() -> App:
    """Return the only app of this machine's customers, for commands; raise ``Refused`` if there are none or several."""
    apps = list(App.objects.select_related("organisation").filter(going=None, organisation__internal=False)[:2])
    if len(apps) != 1:
        raise Refused("there is no app yet" if not apps else "there are several apps", remedy="Say which: --app N.")
    return apps[0]


def app_of_token(principal: Principal, app_id: int | None) -> App:
    """The token's app; 404 when another one is requested."""
    if app_id not in (None, principal.app_id):
        raise Http404("There is no such app.")
    app = App.objects.select_related("organisation").filter(pk=principal.app_id, going=None).first()
    if app is None:
        raise Http404("There is no such app.")
    return app


def app_of_person(user: Person, app_id: int | None) -> App:
    """The requested app, or the person's first one; 404 when there is none."""
    if app_id is not None:
        return require_app(user, app_id)
    first = apps_of(user).order_by("organisation__internal", "pk").first()
    if first is None:
        raise Http404("You belong to no organisation with an app.")
    return first


def _membership(user: Person, organisation_id: int) -> Membership | None:
    if not user.is_authenticated:
        return None
    of_person = Membership.objects.filter(user=user, organisation_id=organisation_id, organisation__going=None)
    return of_person.select_related("organisation", "user").first()
