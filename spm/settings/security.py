"""Settings of passwords, cookies, forms, headers, and access to the REST interface.

The content policy allows our own scripts and styles, and inline ones only with the nonce of the answer; the admin's
exception is in ``spm.web.admin_csp``. When ``SPM_BASE_URL`` is https, cookies are sent over TLS only.
"""

from csp.constants import NONCE, NONE, SELF
from environs import validate

from spm.limits import READ_FORM_BYTES_MAX, WEB_ADDRESS_CONNECTIONS_MAX
from spm.settings.accounts import SPM_OIDC_ORIGIN
from spm.settings.environment import env
from spm.settings.site import SPM_BASE_URL

_TLS = SPM_BASE_URL.startswith("https://")

PASSWORD_HASHERS = ["spm.accounts.logins.hashers.BoundedArgon2"]
_VALIDATION = "django.contrib.auth.password_validation."
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": _VALIDATION + "UserAttributeSimilarityValidator"},
    {"NAME": _VALIDATION + "MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": _VALIDATION + "CommonPasswordValidator"},
]
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"

SESSION_ENGINE = "spm.accounts.logins.sessions"
SESSION_COOKIE_AGE = 86_400 * env.int("SPM_SESSION_DAYS", 14, validate=validate.Range(1, 400))
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _TLS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [SPM_BASE_URL]
# No form brings files. Bodies of samples pass by these limits, and have their own.
FILE_UPLOAD_HANDLERS = ["frontend.refusals.NoUploads"]
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1_000
DATA_UPLOAD_MAX_MEMORY_SIZE = READ_FORM_BYTES_MAX
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if _TLS else 0
X_FRAME_OPTIONS = "DENY"
_LOOPBACK = ["127.0.0.0/8", "::1/128"] if env.bool("SPM_BEHIND_PROXY", False) else []
SPM_TRUSTED_PROXIES: list[str] = env.list("SPM_TRUSTED_PROXIES", _LOOPBACK)  # whose forwarding headers are believed
SPM_ADDRESS_CONNECTIONS_MAX: int = env.int(
    "SPM_ADDRESS_CONNECTIONS_MAX", WEB_ADDRESS_CONNECTIONS_MAX, validate=validate.Range(min=1)
)

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF, *([SPM_OIDC_ORIGIN] if SPM_OIDC_ORIGIN else [])],  # a form leads to the provider
        "frame-ancestors": [NONE],
    },
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 100,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "SPM",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v[12]",
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_NAME_OVERRIDES": {
        "AlertStateEnum": "alerts.models.AlertEvent.STATES",
        "GrantedRoleEnum": "spm.accounts.organisations.rights.ROLES",
        "RoleEnum": "spm.accounts.models.Role",
        "RuleKindEnum": "frontend.api.alerts.alert_rules.KINDS",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "frontend.api.base.describe_refusals",
        "frontend.prometheus.openapi.describe",  # adds the addresses that are no REST operations
        "ingest.http.openapi.describe",
        "frontend.help.rights.describe",
        "frontend.help.curl.describe",
    ],
}
