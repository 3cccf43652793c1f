"""The base of all pages of an app: checks the login and the access to the app, and supplies the time."""

from typing import Any, cast

from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.views.generic import TemplateView

from frontend.presenters.charts import first_range
from rollups.services.retractions import Actor
from spm.accounts.access import require_app, rights_in
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.accounts.sources import history_ms
from spm.clock import SystemClock

clock = SystemClock()


class AppPage(LoginRequiredMixin, TemplateView):
    """A page under ``apps/<app_id>/``; 404 for an app of other people, 403 without the ``right``.

    A page that ``shows_secrets`` is stored nowhere and never compressed (``frontend.compression`` says why).
    """

    right = Right.SEE_APP
    shows_secrets = False

    @property
    def person(self) -> User:
        """The person who is logged in."""
        return cast(User, self.request.user)

    def app(self) -> App:
        """Return the app that the address names."""
        return require_app(self.person, self.kwargs["app_id"], self.right)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the app, the time, and what the person may do."""
        app = self.app()
        now_ms = clock.now_ms()
        begin = first_range(history_ms(app, now_ms))
        return super().get_context_data(
            app=app,
            now_ms=now_ms,
            first_range=begin,
            rights=rights_in(self.person, app),
            **kwargs,
        )

    def render_to_response(self, context: dict[str, Any], **response_kwargs: Any) -> HttpResponse:
        """Render the page; one that shows secrets says that nobody may store it."""
        response = super().render_to_response(context, **response_kwargs)
        if self.shows_secrets:
            response["Cache-Control"] = "no-store"
        return response

    def actor(self) -> Actor:
        """Return the person who acts, for the log."""
        return Actor(self.person.get_username(), str(self.request.META.get("REMOTE_ADDR", "")), self.person)
