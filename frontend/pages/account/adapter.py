"""What django-allauth asks this site: who may sign up, how passwords are checked, how mail goes out, what is encrypted.

Passwords and codes are checked by ``spm.accounts.logins.attempts`` alone. Mail goes into the outbox, whose worker sends
it, so that no page waits for a mail server. The secrets of second factors are encrypted with a key that is made of the
pepper. Settings name ``AccountAdapter``, ``SecondFactorAdapter`` and ``SingleSignOnAdapter``.
"""

import base64
import hmac
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.core import context as allauth_context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from alerts.notify import account_mail
from alerts.notify.email import goes_to_a_folder
from frontend.pages.account import newcomers
from spm.accounts.logins import attempts, hashers
from spm.accounts.logins.limits import UNCONFIRMED_MS
from spm.accounts.logins.origins import address_of
from spm.accounts.logins.sessions import SHORT_MS
from spm.accounts.services import password_changed
from spm.clock import SystemClock, moment, random_bytes

_clock = SystemClock()
_ASKED_FOR = ("email_confirmation", "email_confirmation_signup", "password_reset_key", "unknown_account")
_LOGIN_CHARS_MAX = 150


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth is untyped
    """Accounts of people."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Whether this person may make an account."""
        policy = settings.SPM_SIGN_UP
        return policy == "open" or (policy == "invited" and newcomers.is_invited(request))

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address, as the web server has found it."""
        return address_of(request) or "0.0.0.0"  # shown, not bound

    def populate_username(self, request: HttpRequest, user: User) -> None:
        """Make the mail address the login; a second account with one address gets a longer one."""
        name = user.email[: _LOGIN_CHARS_MAX - 10] or f"person-{random_bytes(4).hex()}"
        is_taken = User.objects.filter(username__iexact=name).exists()
        user.username = f"{name}.{random_bytes(4).hex()}" if is_taken else name

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Save a new person; the password is hashed in a stranger's place."""
        attempts.count_request(request, "sign-up", form.cleaned_data.get("email") or "")
        with hashers.as_stranger(True):
            saved: User = super().save_user(request, user, form, commit)
        return saved

    def set_password(self, user: User, password: str) -> None:
        """Set a new password; the entry of the audit log is written with it."""
        with hashers.as_stranger(True):
            super().set_password(user, password)
        password_changed(user, settings.SPM_DATA, address=address_of(allauth_context.request))

    def authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Never called: ``attempts`` checks passwords."""
        raise AssertionError("BUG: a password was checked past the login budget")

    def reauthenticate(self, user: User, password: str) -> bool:
        """Check the password of a person who is logged in."""
        return attempts.is_password_of(user, allauth_context.request, password)

    def pre_login(self, request: HttpRequest, user: User, *, signup: bool, **named: Any) -> HttpResponse | None:
        """Ask a person whose first day is over to confirm the address before the next login."""
        response: HttpResponse | None = super().pre_login(request, user, signup=signup, **named)
        unconfirmed = EmailAddress.objects.filter(user=user, primary=True, verified=False).first()
        is_new = signup or user.date_joined > moment(_clock.now_ms() - UNCONFIRMED_MS)
        if response is not None or unconfirmed is None or is_new or goes_to_a_folder():
            return response
        unconfirmed.send_confirmation(request)
        asking: HttpResponse = self.respond_email_verification_sent(request, user)
        return asking

    def login(self, request: HttpRequest, user: User) -> None:
        """Begin a session; one of a person whose address is not confirmed ends after a day."""
        super().login(request, user)
        if EmailAddress.objects.filter(user=user, primary=True, verified=False).exists() and not goes_to_a_folder():
            request.session[SHORT_MS] = UNCONFIRMED_MS

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Confirm an address; the person's session then lasts as long as others do."""
        is_confirmed: bool = super().confirm_email(request, email_address)
        if is_confirmed and request.user.is_authenticated and request.user.pk == email_address.user_id:
            request.session.pop(SHORT_MS, None)
        return is_confirmed

    def get_signup_redirect_url(self, request: HttpRequest) -> str:
        """Return the page on which a new person begins."""
        return newcomers.first_page(request)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """Return the page of security."""
        return reverse("mfa_index")

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Put a mail into the outbox. Those that strangers can ask for are counted."""
        request = allauth_context.request
        if template_prefix.rpartition("/")[2] in _ASKED_FOR:
            attempts.count_request(request, "mail", email)
        facts = {"request": request, "email": email, "base_url": settings.SPM_BASE_URL, **context}
        message = self.render_mail(template_prefix, email, facts)
        account_mail.queue(email, str(message.subject), f"{message.body}\n", now_ms=_clock.now_ms())


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Second factors, whose secrets are encrypted."""

    def encrypt(self, text: str) -> str:
        """Encrypt a secret for the database."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Decrypt a secret of the database."""
        return _fernet().decrypt(encrypted_text.encode()).decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return how authenticators call this site."""
        return {**super().get_public_key_credential_rp_entity(), "name": "SPM"}


class SingleSignOnAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """People whom the site's own provider vouches for."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whether this person may make an account: an invitation is for its own address."""
        invitation = newcomers.invitation_of(request)
        is_for_them = invitation is not None and invitation.email == str(sociallogin.user.email).lower()
        return settings.SPM_SIGN_UP == "open" or (settings.SPM_SIGN_UP == "invited" and is_for_them)

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """Save a new person, who gets an organisation or joins the one that invites."""
        user: User = super().save_user(request, sociallogin, form)
        newcomers.welcome(request, user)
        return user


def _fernet() -> Fernet:
    key = hmac.digest(settings.SPM_PEPPER.encode(), b"secrets of second factors", "sha256")
    return Fernet(base64.urlsafe_b64encode(key))
