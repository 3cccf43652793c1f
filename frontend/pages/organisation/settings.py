"""The pages of apps and of the organisation itself: names, new apps, deletion."""

from typing import Any, ClassVar

from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect

from frontend.pages.organisation.base import Act, OrganisationPage
from spm.accounts.models import App, Membership
from spm.accounts.organisations import settings
from spm.accounts.organisations.rights import Right
from spm.accounts.services import delete_app as services_delete_app
from spm.accounts.services import delete_organisation
from spm.errors import LimitExceeded, Refused


def create_app(own: Membership, form: QueryDict) -> str:
    """Create an app."""
    app = settings.create_app(own.user, own.organisation, form.get("name", ""))
    return f"“{app}” is there. Send data to it by “Add data”."


def rename_app(own: Membership, form: QueryDict) -> str:
    """Rename an app."""
    app = app_of(own, form)
    settings.rename_app(own.user, app, form.get("name", ""))
    return f"The app is called “{app}” now."


def delete_app(own: Membership, form: QueryDict) -> str:
    """Delete an app whose name was typed."""
    app = app_of(own, form)
    _check_typed(form, app.name)
    services_delete_app(own.user, app)
    return f"“{app}” is deleted. Its stored data is removed within the hour."


def rename(own: Membership, form: QueryDict) -> str:
    """Rename the organisation."""
    settings.rename(own.user, own.organisation, form.get("name", ""))
    return "The organisation has its new name."


def delete(own: Membership, form: QueryDict) -> str:
    """Delete the organisation, whose name was typed, with all apps and data."""
    _check_typed(form, own.organisation.name)
    delete_organisation(own.user, own.organisation)
    return f"“{own.organisation}” is deleted. All its data is removed within the hour."


class Apps(OrganisationPage):
    """The apps of an organisation."""

    template_name = "frontend/organisation/apps.html"
    right = Right.SEE_MEMBERS
    acts: ClassVar = {
        "create": Act(Right.CREATE_APP, create_app),
        "rename": Act(Right.CREATE_APP, rename_app),
        "delete": Act(Right.DELETE_APP, delete_app),
    }

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the apps."""
        context = super().get_context_data(**kwargs)
        return {**context, "apps": App.objects.filter(organisation=context["organisation"], going=None)}


class General(OrganisationPage):
    """The organisation's name, and its end."""

    template_name = "frontend/organisation/general.html"
    right = Right.RENAME
    acts: ClassVar = {"rename": Act(Right.RENAME, rename), "delete": Act(Right.DELETE, delete)}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the apps, whose data goes with the organisation or is exported before."""
        context = super().get_context_data(**kwargs)
        return {**context, "apps": App.objects.filter(organisation=context["organisation"], going=None)}


class NewOrganisation(OrganisationPage):
    """Creates a further organisation; for everybody who is logged in."""

    template_name = "frontend/organisation/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add nothing: there is no organisation yet."""
        return {"view": self, **kwargs}

    def post(self, request: Any, organisation_id: int = 0) -> HttpResponse:
        """Create it with a first app, and show how to send data there."""
        try:
            settings.require_may_create(self.person)
            organisation = settings.create(self.person, request.POST.get("name", ""))
            app = settings.create_app(self.person, organisation, settings.FIRST_APP)
        except (Refused, LimitExceeded) as error:
            return self.render_to_response(self.get_context_data(refusal=str(error)), status=409)
        return redirect("frontend:send", app.pk)


def app_of(own: Membership, form: QueryDict) -> App:
    """The app of the organisation that the form names."""
    number = form.get("app", "")
    rows = App.objects.filter(organisation=own.organisation, going=None).select_related("organisation")
    return get_object_or_404(rows, pk=int(number) if number.isdecimal() and len(number) < 19 else 0)


def _check_typed(form: QueryDict, name: str) -> None:
    if form.get("confirm", "").strip() != name:
        raise Refused("Nothing was deleted: the name was not typed.", wanted=name)
