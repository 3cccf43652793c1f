"""Log in, log out and change the password: Django's views with our templates, forms and limits."""

from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator

from frontend.forms import LoginForm, PasswordForm
from frontend.refusals import answers_refusals
from spm.accounts.logins import attempts
from spm.accounts.logins.limits import LOGIN_KNOWN_MS
from spm.accounts.logins.origins import DEVICE_COOKIE, address_of, checked_device
from spm.accounts.services import password_changed


class Login(LoginView):
    """The login page. ``?device=``, from a mail about wrong logins, makes the browser one that the account knows."""

    template_name = "frontend/accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form."""
        device = checked_device(request.GET.get("device", ""))
        return _with_device(redirect("frontend:login"), device) if device else super().get(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Log the person in, under a new session id."""
        assert isinstance(form, LoginForm), "BUG: a login by a form of another kind"
        return _with_device(super().form_valid(form), form.device)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again, with 429 if the password was not checked."""
        return _with_refusal(super().form_invalid(form), form)


class Logout(LogoutView):
    """Logs the person out; POST only."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Note it and log out."""
        attempts.log_out(request, request.user)
        return super().post(request, *args, **kwargs)


@method_decorator(answers_refusals, name="dispatch")
class Password(PasswordChangeView):
    """Changes the password and ends the other sessions of the person."""

    template_name = "frontend/accounts/password.html"
    form_class = PasswordForm
    success_url = reverse_lazy("frontend:home")

    def get_form_kwargs(self) -> dict[str, Any]:
        """Give the form the request as well: who tries passwords from where is counted."""
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Save the password and end the other sessions."""
        response = super().form_valid(form)
        person = cast(User, self.request.user)
        password_changed(person, Path(settings.SPM_DATA), address=address_of(self.request))
        messages.success(self.request, "Your password is changed.")
        return response

    def form_invalid(self, form: PasswordChangeForm) -> HttpResponse:
        """Show the form again, with 429 if the old password was not checked."""
        return _with_refusal(super().form_invalid(form), form)


def _with_device(response: HttpResponse, device: str) -> HttpResponse:
    """Let the browser keep the id of its device, as long as the account would know it."""
    response.set_cookie(
        DEVICE_COOKIE,
        device,
        max_age=LOGIN_KNOWN_MS // 1000,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def _with_refusal(response: HttpResponse, form: Form) -> HttpResponse:
    refusal = getattr(form, "refusal", None)
    if refusal is not None:
        response.status_code = 429
        response["Retry-After"] = str(refusal.retry_after_s)
    return response
