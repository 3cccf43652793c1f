"""What people do with an organisation itself and its apps: create, rename.

Deletion is an act of ``spm.accounts.services``, as it is of the admin. Enter by any function.
"""

from django.conf import settings as site_settings
from django.contrib.auth.models import User
from django.db import transaction

from spm.accounts import audit
from spm.accounts.models import App, Membership, Organisation, Role
from spm.accounts.organisations.limits import APPS_MAX, ORGANISATIONS_OWNED_MAX
from spm.errors import LimitExceeded, Refused

NAME_CHARS_MAX = 120
FIRST_APP = "Main"


def require_may_create(person: User) -> None:
    """Raise ``Refused`` where the site does not let everybody make tenants of their own."""
    if site_settings.SPM_SIGN_UP != "open" and not person.is_staff:
        raise Refused("Only staff create organisations on this site.", remedy="Ask them for one.")


def create(owner: User, name: str) -> Organisation:
    """Create an organisation with this owner."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=owner.pk)
        owned = Membership.objects.filter(user=owner, role=Role.OWNER, organisation__going=None).count()
        if owned >= ORGANISATIONS_OWNED_MAX:
            raise LimitExceeded("One person owns so many organisations at most.", got=owned)
        organisation = Organisation.objects.create(name=checked_name(name))
        Membership.objects.create(organisation=organisation, user=owner, role=Role.OWNER)
        audit.record("organisation created", organisation.name, actor=owner, organisation=organisation)
    return organisation


def create_first(owner: User) -> App:
    """Create the organisation of somebody new, with a first app; both can be renamed."""
    name = (owner.email or owner.get_username()).partition("@")[0] or "My organisation"
    with transaction.atomic():
        return create_app(owner, create(owner, name), FIRST_APP)


def rename(actor: User, organisation: Organisation, name: str) -> None:
    """Rename an organisation."""
    new = checked_name(name)
    with transaction.atomic():
        before = Organisation.objects.select_for_update().get(pk=organisation.pk).name
        Organisation.objects.filter(pk=organisation.pk).update(name=new)
        detail = {"before": before, "after": new}
        audit.record("organisation renamed", new, actor=actor, organisation=organisation, detail=detail)


def create_app(actor: User, organisation: Organisation, name: str) -> App:
    """Create an app; its name is given once in an organisation."""
    new = checked_name(name)
    with transaction.atomic():
        Organisation.objects.select_for_update().get(pk=organisation.pk)
        apps = App.objects.filter(organisation=organisation, going=None)
        if apps.filter(name=new).exists():
            raise Refused("There is an app with this name.", got=new, remedy="Choose another name.")
        if apps.count() >= APPS_MAX:
            raise LimitExceeded("An organisation has so many apps at most.", got=APPS_MAX)
        app = App.objects.create(organisation=organisation, name=new)
        audit.record("app created", new, actor=actor, organisation=organisation, detail={"app": app.pk})
    return app


def rename_app(actor: User, app: App, name: str) -> None:
    """Rename an app."""
    new = checked_name(name)
    with transaction.atomic():
        Organisation.objects.select_for_update().get(pk=app.organisation_id)
        if App.objects.filter(organisation_id=app.organisation_id, going=None, name=new).exclude(pk=app.pk).exists():
            raise Refused("There is an app with this name.", got=new, remedy="Choose another name.")
        App.objects.filter(pk=app.pk).update(name=new)
        detail = {"app": app.pk, "before": app.name, "after": new}
        audit.record("app renamed", new, actor=actor, organisation=app.organisation, detail=detail)
    app.name = new


def checked_name(name: str) -> str:
    """The name without blanks around it; raise ``Refused`` for one that no page could show."""
    text = name.strip()
    if not text or len(text) > NAME_CHARS_MAX or not text.isprintable():
        raise Refused("A name is one line of text.", got=repr(text[:40]), wanted=f"1 to {NAME_CHARS_MAX} characters")
    return text
