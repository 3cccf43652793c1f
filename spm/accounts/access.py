"""Decides which apps a person or a program may see; no other module does.

A foreign app is reported as one that does not exist (404), so that nobody learns which ids are taken. Superusers have
no special access here: they work in the admin. Only the product's own app is readable for all staff. Enter by
``require_app`` for pages, by ``app_of_token`` and ``app_of_person`` for interfaces that take a token or a session. What
a person may do there says the table ``organisations.rights``.
"""

from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404

from spm.accounts.models import APP_ID_MAX, App, Membership, Organisation, Role
from spm.accounts.organisations import rights
from spm.accounts.organisations.rights import Right
from spm.accounts.tokens import Principal
from spm.errors import Refused

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


def require_app(user: Person, app_id: int, right: Right = Right.SEE_APP) -> App:
    """Return the app if the person has the right there; else 404 (foreign) or 403 (too low a role)."""
    app = apps_of(user).filter(pk=app_id).first() if 1 <= app_id <= APP_ID_MAX else None
    if app is None:
        raise Http404("There is no such app.")
    _check(_role_in(user, app), right, app.organisation)
    return app


def has_right(user: Person, app: App, right: Right) -> bool:
    """Whether the person may do this in the app."""
    role = _role_in(user, app)
    return role is not None and rights.may(role, right)


def rights_in(user: Person, app: App) -> dict[str, bool]:
    """For templates: whether the person may do each act in the app, by the name of its right in small letters."""
    return rights.rights_of(_role_in(user, app))


def require_organisation(user: Person, organisation_id: int, right: Right) -> Membership:
    """Return the person's membership in the organisation if it gives the right; else 404 (foreign) or 403 (low)."""
    membership = _membership(user, organisation_id)
    if membership is None:
        raise Http404("There is no such organisation.")
    _check(membership.role, right, membership.organisation)
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


def _role_in(user: Person, app: App) -> str | None:
    """The person's role; None for strangers. Staff look at the product's own app as if they were its viewers."""
    own = _membership(user, app.organisation_id)
    if own is not None:
        return own.role
    return Role.VIEWER if user.is_staff and app.organisation.internal else None


def _check(role: str | None, right: Right, organisation: Organisation) -> None:
    if role is None or not rights.may(role, right):
        needed = f"you need the role {right.lowest_role} in {organisation}, and yours is {role or 'none'}"
        raise PermissionDenied(f"To {right.text}, {needed}. Ask one of its owners.")


def _membership(user: Person, organisation_id: int) -> Membership | None:
    if not user.is_authenticated:
        return None
    of_person = Membership.objects.filter(user=user, organisation_id=organisation_id, organisation__going=None)
    return of_person.select_related("organisation", "user").first()
