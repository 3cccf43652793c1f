"""Settings of the site: apps, middleware, templates, the database, static files, language, logs.

All data of the product is in one folder (``SPM_DATA``), so that a backup is one folder.
"""

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from environs import validate

from spm.limits import OWN_METRICS_EVERY_S, QUOTA_SAMPLES_PER_S
from spm.settings.environment import BASE_DIR, DATA, database, env, mail_server, own_hosts, secret

SPM_ROOT = BASE_DIR
SPM_DATA = DATA
SPM_BASE_URL: str = env.str("SPM_BASE_URL", "http://localhost:8000").rstrip("/")
SPM_BIND: str = env.str("SPM_BIND", "127.0.0.1")
SPM_OTLP_GRPC_PORT: int = env.int("SPM_OTLP_GRPC_PORT", 0, validate=validate.Range(0, 65_535))
SPM_STORE_URL: str = env.str("SPM_STORE_URL", f"lmdb://{DATA / 'store'}")
SPM_TRANSPORT: str = env.str("SPM_TRANSPORT", "direct")
SPM_AMQP_URL: str = env.str("SPM_AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
SPM_BROKER_SECRET: str = env.str("SPM_BROKER_SECRET", "")
SPM_WORKER_METRICS_PORT: int = env.int("SPM_WORKER_METRICS_PORT", 0)
SPM_OWN_METRICS_S: int = env.int("SPM_OWN_METRICS_S", OWN_METRICS_EVERY_S)
SPM_CONSUMER_STEP: str = env.str("SPM_CONSUMER_STEP", "ingest.worker.connections:ConsumerStep")
SPM_SPARK_MASTER: str = env.str("SPM_SPARK_MASTER", "local[*]")
SPM_SPARK_PYTHON: str = env.str(
    "SPM_SPARK_PYTHON", ""
)  # rollups.spark.session takes it from the environment, as Spark does
SPM_STRATEGIES: str = env.str("SPM_STRATEGIES", "")  # spm.store.placement takes it from the environment, as Spark does
SPM_MAIL_DIR: str = env.str("SPM_MAIL_DIR", str(DATA / "mail"))
SPM_PEPPER: str = secret("SPM_PEPPER", "pepper")
SECRET_KEY: str = secret("SPM_SECRET_KEY", "secret-key")
_RATE = env.str("SPM_APP_RATE_MAX", "" if SPM_TRANSPORT == "direct" else str(QUOTA_SAMPLES_PER_S))
SPM_APP_RATE_MAX: int | None = int(_RATE) if _RATE.isdecimal() and int(_RATE) else None
if _RATE and not _RATE.isdecimal():
    raise ImproperlyConfigured(f"SPM_APP_RATE_MAX is {_RATE!r}; it is a number of samples a second, 0 for no limit.")
SPM_APP_PAST_HOURS_MAX: int = env.int("SPM_APP_PAST_HOURS_MAX", 0 if SPM_TRANSPORT == "direct" else 20_000)

if SPM_TRANSPORT not in ("direct", "amqp"):
    raise ImproperlyConfigured(f"SPM_TRANSPORT is {SPM_TRANSPORT!r}; it can be 'direct' or 'amqp'.")

DEBUG: bool = env.bool("SPM_DEBUG", False)
ALLOWED_HOSTS: list[str] = [*env.list("SPM_ALLOWED_HOSTS", []), *own_hosts(SPM_BASE_URL)]

INSTALLED_APPS = [
    "spm",
    "spm.accounts",
    "spm.events",
    "ingest",
    "rollups",
    "alerts",
    "frontend",
    "frontend.dashboards",
    "spm.apps.Unfold",
    "spm.apps.Admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    *(["allauth.socialaccount.providers.openid_connect"] if env.str("SPM_OIDC_URL", "") else []),  # it loads requests
    "allauth.usersessions",
    "spm.apps.ChosenStaticFiles",
    "rest_framework",
    "drf_spectacular",
    "csp",
]

MIDDLEWARE = [
    "spm.web.request_metrics.RequestMetrics",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "spm.web.protective_headers.PrivateAnswers",
    "frontend.compression.CompressAnswers",
    "csp.middleware.CSPMiddleware",
    "spm.web.admin_csp.AdminPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "spm.accounts.logins.session_rows.NoteSessions",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
            ],
            "libraries": {"navigation": "frontend.pages.navigation"},
        },
    },
]

ROOT_URLCONF = "spm.web.urls"
APPEND_SLASH = False  # a redirected POST loses its body: addresses are exact

DATABASES = {"default": database(env.str("DATABASE_URL", "sqlite://"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = DATA / "static"
_MODULES = BASE_DIR / "node_modules"
STATICFILES_DIRS = [
    ("vendor/uplot", _MODULES / "uplot" / "dist"),
    ("vendor/htmx", _MODULES / "htmx.org" / "dist"),
    ("vendor/pico", _MODULES / ".styles"),
]
_PLAIN = "django.contrib.staticfiles.storage.StaticFilesStorage"
_BUNDLED = "frontend.bundles.BundledStaticFiles"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _PLAIN if DEBUG else _BUNDLED},
}
MEDIA_ROOT = DATA / "media"

# In the database, so that all processes share it: a one-time code counts once.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cache"}}

SPM_SMTP_URL: str = env.str("SPM_SMTP_URL", "")
_DELIVERY = "smtp" if SPM_SMTP_URL else "filebased"  # who names a mail server wants mail
EMAIL_BACKEND: str = env.str("SPM_EMAIL_BACKEND", f"django.core.mail.backends.{_DELIVERY}.EmailBackend")
EMAIL_FILE_PATH = SPM_MAIL_DIR
EMAIL_HOST: str = env.str("SPM_SMTP_HOST", "localhost")
EMAIL_PORT: int = env.int("SPM_SMTP_PORT", 25)
EMAIL_HOST_USER: str = env.str("SPM_SMTP_USER", "")
EMAIL_HOST_PASSWORD: str = env.str("SPM_SMTP_PASSWORD", "")
EMAIL_USE_TLS: bool = env.bool("SPM_SMTP_TLS", False)
EMAIL_USE_SSL = False
if SPM_SMTP_URL:
    globals().update(mail_server(SPM_SMTP_URL))
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL: str = env.str("SPM_MAIL_FROM", "spm@localhost")
SPM_CONFIRM_RECEIVERS: bool = env.bool("SPM_CONFIRM_RECEIVERS", True)  # strangers' addresses are asked first
SPM_NOTIFY_NETWORKS: list[str] = env.list("SPM_NOTIFY_NETWORKS", [])  # private ones that notifications may reach

UNFOLD = {
    "SITE_TITLE": "SPM",
    "SITE_HEADER": "SPM",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("img/mark.svg")}],
    "SIDEBAR": {"show_search": True, "command_search": True},
    "COMMAND": {  # Ctrl K: by mail, name, the prefix of a token, the number of an app or a run
        "search_models": [
            "auth.User",
            "accounts.Organisation",
            "accounts.App",
            "accounts.Token",
            "accounts.Source",
            "alerts.Rule",
            "rollups.Run",
            "rollups.Trouble",
        ]
    },
    "COLORS": {  # the pages' own blue, from light to dark
        "primary": {
            "50": "239 244 255",
            "100": "222 232 254",
            "200": "195 212 253",
            "300": "154 182 250",
            "400": "108 145 243",
            "500": "73 112 232",
            "600": "47 91 216",
            "700": "38 73 182",
            "800": "35 62 148",
            "900": "33 55 119",
            "950": "23 35 75",
        }
    },
}

_TOO_LARGE = ("RequestDataTooBig", "TooManyFieldsSent", "TooManyFilesSent")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "filters": {
        "hosts": {"()": "spm.web.error_status.ForeignHosts"},
        "waiting": {"()": "spm.web.error_status.WaitingPages"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("SPM_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.request": {"level": "ERROR", "filters": ["waiting"]},
        # Anybody can send a form that is too large, and each would be a traceback; answers are counted by their status.
        **{f"django.security.{name}": {"level": "CRITICAL"} for name in _TOO_LARGE},
        "django.security.DisallowedHost": {"filters": ["hosts"]},
        # A line per tick is of no use; failures are logged at a higher level.
        **{
            name: {"level": "WARNING"}
            for name in ("uvicorn.error", "celery.beat", "celery.worker.strategy", "celery.app.trace")
        },
    },
}
