"""Log in, log out, change the password: Django's own views in our clothes."""

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
    """The door."""

    template_name = "frontend/login.html"
    redirect_authenticated_user = True


class Logout(LogoutView):
    """The way out; by POST only."""


class Password(PasswordChangeView):
    """A new password; other sessions of the person end."""

    template_name = "frontend/password.html"
    success_url = reverse_lazy("frontend:home")

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Save it, and what follows from it."""
        response = super().form_valid(form)
        password_changed(cast(User, self.request.user), Path(settings.SPM_DATA))
        messages.success(self.request, "Your password is changed.")
        return response
