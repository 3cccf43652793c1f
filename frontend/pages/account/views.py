"""Log in, log out and change the password: the views of Django and of allauth with our templates, forms and limits."""

from pathlib import Path
from typing import Any, cast

from allauth.account.views import LoginView
from allauth.mfa.base.views import AuthenticateView, ReauthenticateView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LogoutView, PasswordChangeView
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator

from frontend.forms import PasswordForm
from frontend.pages.account.forms import LoginForm
from frontend.refusals import answers_refusals
from spm.accounts.logins import attempts
from spm.accounts.logins.limits import LOGIN_KNOWN_MS
from spm.accounts.logins.origins import DEVICE_COOKIE, address_of, checked_device
from spm.accounts.services import password_changed


@method_decorator(answers_refusals, name="dispatch")
class Login(LoginView):  # type: ignore[misc]  # allauth is untyped
    """The login page. ``?device=``, from a mail about wrong logins, makes the browser one that the account knows."""

    template_name = "frontend/accounts/login.html"
    form_class = LoginForm

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form."""
        device = checked_device(request.GET.get("device", ""))
        page: HttpResponse = (
            _with_device(redirect("frontend:login"), device) if device else super().get(request, *args, **kwargs)
        )
        return page

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add whether people may sign up, and by which provider they may log in."""
        context = {"sign_up": settings.SPM_SIGN_UP == "open", "provider": oidc_name(), **kwargs}
        return {**super().get_context_data(**context)}

    def form_valid(self, form: LoginForm) -> HttpResponse:
        """Begin the session under a new id, or ask for the second factor."""
        return _with_device(super().form_valid(form), form.device)

    def form_invalid(self, form: LoginForm) -> HttpResponse:
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


class SecondFactor(AuthenticateView):  # type: ignore[misc]
    """Asks for the second factor of a login."""

    def form_invalid(self, form: Form) -> HttpResponse:
        """Show the form again, with 429 if the code was not checked."""
        return _with_refusal(super().form_invalid(form), form)


class SecondFactorAgain(ReauthenticateView):  # type: ignore[misc]
    """Asks for the second factor before a change to the account."""

    def form_invalid(self, form: Form) -> HttpResponse:
        """Show the form again, with 429 if the code was not checked."""
        return _with_refusal(super().form_invalid(form), form)


def oidc_name() -> str:
    """The name of the provider of single sign-on; empty if there is none."""
    apps = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
    return str(apps[0]["name"]) if apps else ""


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
