"""Settings of people's accounts: sign-up, mails, second factors, single sign-on.

django-allauth keeps the flows; its limits are off, since ``spm.accounts.logins`` counts every try for all processes.
``SPM_SIGN_UP`` says who may make an account: ``open`` is everybody, ``invited`` those with an invitation, ``closed``
nobody. Enter by ``SPM_SIGN_UP``.
"""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from spm.settings.environment import env
from spm.settings.site import SPM_BASE_URL

SPM_SIGN_UP: str = env.str("SPM_SIGN_UP", "invited")
if SPM_SIGN_UP not in ("open", "invited", "closed"):
    raise ImproperlyConfigured(f"SPM_SIGN_UP is {SPM_SIGN_UP!r}; it can be 'open', 'invited' or 'closed'.")

ACCOUNT_ADAPTER = "frontend.pages.account.adapter.AccountAdapter"
ACCOUNT_FORMS = {
    "signup": "frontend.pages.account.forms.SignUpForm",
    "reset_password_from_key": "frontend.pages.account.forms.NewPasswordForm",
}
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "optional"  # asked for at once; a person who is new may go on for a day without it
ACCOUNT_PREVENT_ENUMERATION = "strict"  # no page says whether an address has an account
ACCOUNT_CHANGE_EMAIL = True  # one address each; a new one takes its place once it is confirmed
ACCOUNT_CONFIRM_EMAIL_ON_GET = False  # mail scanners follow links
ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = 3
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[SPM] "
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = True  # so that a reset costs as much, and says as much, for any address
ACCOUNT_RATE_LIMITS = False
ACCOUNT_REAUTHENTICATION_TIMEOUT = 600
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_SESSION_REMEMBER = True  # the session's end is that of spm.accounts.logins.sessions
ACCOUNT_DEFAULT_HTTP_PROTOCOL = urlsplit(SPM_BASE_URL).scheme
PASSWORD_RESET_TIMEOUT = 3_600

MFA_ADAPTER = "frontend.pages.account.adapter.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_FORMS = {
    "authenticate": "frontend.pages.account.forms.SecondFactorForm",
    "reauthenticate": "frontend.pages.account.forms.SecondFactorAgainForm",
}
MFA_RATE_LIMITS = False
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "SPM"
MFA_TOTP_TOLERANCE = 1
MFA_RECOVERY_CODE_DIGITS = 10
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = urlsplit(SPM_BASE_URL).hostname == "localhost"

_OIDC_URL: str = env.str("SPM_OIDC_URL", "")
_OIDC_NAME: str = env.str("SPM_OIDC_NAME", "Single sign-on")
_OIDC_CLIENT: str = env.str("SPM_OIDC_CLIENT", "")
_OIDC_SECRET: str = env.str("SPM_OIDC_SECRET", "")
SPM_OIDC_ORIGIN = "{0.scheme}://{0.netloc}".format(urlsplit(_OIDC_URL)) if _OIDC_URL else ""
SOCIALACCOUNT_ADAPTER = "frontend.pages.account.adapter.SingleSignOnAdapter"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # an address that a provider names opens nobody's account
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "oidc",
                "name": _OIDC_NAME,
                "client_id": _OIDC_CLIENT,
                "secret": _OIDC_SECRET,
                "settings": {"server_url": _OIDC_URL},
            }
        ]
        if _OIDC_URL
        else [],
    }
}
