"""The forms of accounts: django-allauth's, with our limits on tries.

A form whose tries must wait has a ``refusal``; ``views`` answers it with 429.
"""

from typing import Any

from allauth.account.forms import ResetPasswordKeyForm, SignupForm
from allauth.account.utils import perform_login
from allauth.core import context as allauth_context
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from frontend.forms import LoginForm as PasswordLoginForm
from frontend.pages.account import newcomers
from spm.accounts.logins import attempts
from spm.errors import LoginRefused


class LoginForm(PasswordLoginForm):
    """Login and password; what follows (a second factor, a confirmed address) is allauth's."""

    def login(self, request: HttpRequest, redirect_url: str | None = None) -> HttpResponse:
        """Begin the session, or go on to the second factor."""
        response: HttpResponse = perform_login(request, self.get_user(), redirect_url=redirect_url)
        return response


class SignUpForm(SignupForm):  # type: ignore[misc]  # allauth is untyped
    """Mail address and password of a new person. With an invitation the address is that of the invitation."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.invitation = newcomers.invitation_of(allauth_context.request)
        if self.invitation is not None:
            self.fields["email"].initial = self.invitation.email
            self.fields["email"].widget.attrs["readonly"] = True

    def clean_email(self) -> str:
        """Check the address."""
        address: str = super().clean_email()
        if self.invitation is not None and address != self.invitation.email:
            raise forms.ValidationError(f"The invitation is for {self.invitation.email}.")
        return address

    def save(self, request: HttpRequest) -> User:
        """Create the person, and what they begin with."""
        with transaction.atomic():
            user: User = super().save(request)
            newcomers.welcome(request, user)
        return user


class NewPasswordForm(ResetPasswordKeyForm):  # type: ignore[misc]
    """The new password after a reset, typed once: the page can show it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        del self.fields["password2"]

    def clean(self) -> dict[str, Any]:
        """Take the one password."""
        fields: dict[str, Any] = super().clean()
        return fields


class CountedCode(forms.Form):
    """A code of a second factor, whose tries are counted as those of passwords are."""

    refusal: LoginRefused | None = None
    user: User
    authenticator: Authenticator

    def clean_code(self) -> str:
        """Check the code against the person's app and recovery codes."""
        code = "".join(self.cleaned_data["code"].split())
        try:
            is_right = attempts.is_code_of(self.user, allauth_context.request, lambda: self._is_right(code))
        except LoginRefused as refusal:
            self.refusal = refusal
            raise forms.ValidationError(str(refusal), code="refused") from refusal
        if not is_right:
            raise forms.ValidationError("This code is wrong or was used before.", code="incorrect_code")
        return code

    def _is_right(self, code: str) -> bool:
        kinds = (Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES)
        for each in Authenticator.objects.filter(user=self.user, type__in=kinds).order_by("-type"):
            if each.wrap().validate_code(code):
                self.authenticator = each
                return True
        return False


class SecondFactorForm(CountedCode, AuthenticateForm):  # type: ignore[misc]
    """The code at a login."""


class SecondFactorAgainForm(CountedCode, ReauthenticateForm):  # type: ignore[misc]
    """The code before a change to the account."""
