"""Log in, log out and change the password: Django's own views with our templates."""

from pathlib import Path
from typing import cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.http import HttpResponse
from django.urls import reverse_lazy

from spm.accounts.services import password_changed


class Login(LoginView):
    """The login page."""

    template_name = "frontend/accounts/login.html"
    redirect_authenticated_user = True


class Logout(LogoutView):
    """Logs the person out; POST only."""


class Password(PasswordChangeView):
    """Changes the password and ends the other sessions of the person."""

    template_name = "frontend/accounts/password.html"
    success_url = reverse_lazy("frontend:home")

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Save the password and end the other sessions."""
        response = super().form_valid(form)
        password_changed(cast(User, self.request.user), Path(settings.SPM_DATA))
        messages.success(self.request, "Your password is changed.")
        return response
