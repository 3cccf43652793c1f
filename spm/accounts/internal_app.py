"""The product's own app: where its processes send what they count about themselves, and staff look at it.

It belongs to an organisation of its own that has no members. ``make`` is called at every set-up and changes nothing the
second time; ``app_number`` says where metrics go, None when there is no such app (a database that was never set up, or
staff who deleted it), and then nothing is sent.
"""

from django.db import transaction
from django.db.models import QuerySet

from spm.accounts.models import App, Organisation

ORGANISATION = "SPM itself"
APP = "This system"


def make() -> App:
    """The app, made if there is none."""
    with transaction.atomic():
        found = _apps().first()
        if found is not None:
            return found
        organisation = Organisation.objects.create(name=ORGANISATION, internal=True)
        return App.objects.create(organisation=organisation, name=APP)


def app_number() -> int | None:
    """The number of the app."""
    return _apps().values_list("pk", flat=True).first()


def _apps() -> QuerySet[App]:
    return App.objects.filter(organisation__internal=True, organisation__going=None, going=None).order_by("pk")
