"""The product's own app, to which its processes send their metrics; staff can read it (``access`` decides).

It belongs to an organisation of its own without members. ``create`` is called at every set-up and changes nothing the
second time. ``app_number`` returns None when there is no such app (the database was never set up, or staff deleted the
app); then no metrics are sent.
"""

from django.db import transaction
from django.db.models import QuerySet

from spm.accounts.models import App, Organisation

ORGANISATION = "SPM itself"
APP = "This system"


def create() -> App:
    """Return the app; create it if there is none."""
    with transaction.atomic():
        app = _apps().first()
        if app is not None:
            return app
        organisation = Organisation.objects.create(name=ORGANISATION, internal=True)
        return App.objects.create(organisation=organisation, name=APP)


def app_number() -> int | None:
    return _apps().values_list("pk", flat=True).first()


def _apps() -> QuerySet[App]:
    return App.objects.filter(organisation__internal=True, organisation__going=None, going=None).order_by("pk")
