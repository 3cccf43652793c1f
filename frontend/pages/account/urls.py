"""The addresses of accounts, under the names that django-allauth looks for; each answers 429 to too many tries."""

from collections.abc import Callable

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from allauth.socialaccount import views as social
from allauth.socialaccount.providers.openid_connect import views as openid
from allauth.usersessions import views as sessions
from django.conf import settings
from django.http import HttpResponseBase
from django.urls import URLPattern, register_converter
from django.urls import path as plain_path
from django.views.decorators.cache import cache_control

from frontend.pages.account import views
from frontend.refusals import answers_refusals


class AccountConverter:
    """An account's number in base 36, which ends at the first dash."""

    regex = "[0-9A-Za-z]+"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(AccountConverter, "account")
_View = Callable[..., HttpResponseBase]


def path(route: str, view: _View, *, name: str) -> URLPattern:
    """An address whose view may refuse a try. Its page, which may show a secret, is stored nowhere."""
    return plain_path(route, cache_control(no_store=True, private=True)(answers_refusals(view)), name=name)


_sessions = sessions.ListUserSessionsView.as_view(extra_context={"session_days": settings.SESSION_COOKIE_AGE // 86_400})
urlpatterns: list[URLPattern] = [
    path("login", views.Login.as_view(), name="account_login"),
    path("logout", views.Logout.as_view(), name="account_logout"),
    path("signup", account.signup, name="account_signup"),
    path("account/inactive", account.account_inactive, name="account_inactive"),
    path("account/reauthenticate", account.reauthenticate, name="account_reauthenticate"),
    path("account/email", account.email, name="account_email"),
    path("account/email/sent", account.email_verification_sent, name="account_email_verification_sent"),
    path("account/email/confirm/<str:key>", account.confirm_email, name="account_confirm_email"),
    path("account/password", views.Password.as_view(), name="account_change_password"),
    path("account/password/set", account.password_set, name="account_set_password"),
    path("account/reset", account.password_reset, name="account_reset_password"),
    path("account/reset/sent", account.password_reset_done, name="account_reset_password_done"),
    path("account/reset/done", account.password_reset_from_key_done, name="account_reset_password_from_key_done"),
    path(
        "account/reset/<account:uidb36>-<str:key>",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("account/security", mfa.index, name="mfa_index"),
    path("account/code", views.SecondFactor.as_view(), name="mfa_authenticate"),
    path("account/code/again", views.SecondFactorAgain.as_view(), name="mfa_reauthenticate"),
    path("account/app/add", totp.activate_totp, name="mfa_activate_totp"),
    path("account/app/remove", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("account/recovery-codes", recovery.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("account/recovery-codes/new", recovery.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("account/recovery-codes/download", recovery.download_recovery_codes, name="mfa_download_recovery_codes"),
    path("account/keys", webauthn.list_webauthn, name="mfa_list_webauthn"),
    path("account/keys/add", webauthn.add_webauthn, name="mfa_add_webauthn"),
    path("account/keys/again", webauthn.reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path("account/keys/<int:pk>/rename", webauthn.edit_webauthn, name="mfa_edit_webauthn"),
    path("account/keys/<int:pk>/remove", webauthn.remove_webauthn, name="mfa_remove_webauthn"),
    path("login/key", webauthn.login_webauthn, name="mfa_login_webauthn"),
    path("account/sessions", _sessions, name="usersessions_list"),
    path("account/sso", social.connections, name="socialaccount_connections"),
    path("sso/cancelled", social.login_cancelled, name="socialaccount_login_cancelled"),
    path("sso/error", social.login_error, name="socialaccount_login_error"),
    path("sso/signup", social.signup, name="socialaccount_signup"),
    path("sso/<str:provider_id>/login", openid.login, name="openid_connect_login"),
    path("sso/<str:provider_id>/login/callback", openid.callback, name="openid_connect_callback"),
]
