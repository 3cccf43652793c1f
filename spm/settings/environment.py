"""Reads the settings from ``os.environ`` and ``.env``; no other settings module does.

Every variable is documented in ``.env.example``, with its default. The two secrets come from the environment or from
files that ``bin/start`` writes into the data folder; without them the settings do not load, so that no installation
ever runs on a key from a repository. Enter by ``env``, ``secret`` and ``database``.
"""

import socket
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from environs import Env

from spm.cli.dotenv import read_dotenv

BASE_DIR = Path(__file__).resolve().parents[2]

read_dotenv(BASE_DIR)
env = Env()

DATA = Path(env.str("SPM_DATA", str(BASE_DIR / "var"))).expanduser().absolute()


def secret(name: str, file: str) -> str:
    """Read the secret ``name`` from the environment, else from ``file`` in the data folder; raise if it is missing."""
    value: str = env.str(name, "")
    if value:
        return value
    path = DATA / file
    if not path.is_file():
        raise ImproperlyConfigured(f"{name} is not set and {path} does not exist. Run bin/start once, or set {name}.")
    return path.read_text().strip()


def database(url: str) -> dict[str, Any]:
    """Django's description of the database at ``url`` (``sqlite:///path`` or ``postgres://user:password@host/name``).

    What follows ``?`` in the address of PostgreSQL are parameters of libpq, as in ``?sslmode=verify-full``.
    """
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return _sqlite(unquote(parts.path) or "/" + str(DATA / "spm.sqlite3"))
    if parts.scheme in ("postgres", "postgresql"):
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
            "CONN_MAX_AGE": 60,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))),
        }
    raise ImproperlyConfigured(f"DATABASE_URL begins with {parts.scheme!r}. Use sqlite:///path or postgres://…")


def _sqlite(path: str) -> dict[str, Any]:
    """SQLite for several processes: a write-ahead log, writers that wait at BEGIN, and every commit synced.

    A deferred transaction that begins to write fails at once when another one has written meanwhile, whatever the
    time-out: ``IMMEDIATE`` takes the lock first and waits.
    """
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000"
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}


def hours_of_day(name: str, text: str) -> frozenset[int]:
    """The hours of a day (UTC) that ``22-6`` names: from 22:00 until 6:00. All of them if the text is empty."""
    if not text:
        return frozenset(range(24))
    first, separator, end = text.partition("-")
    if not (separator and first.isdecimal() and end.isdecimal() and int(first) < 24 and int(end) <= 24):
        raise ImproperlyConfigured(f"{name} is {text!r}; it is two hours of the day in UTC, as in 22-6.")
    length = (int(end) - int(first)) % 24 or 24
    return frozenset((int(first) + hour) % 24 for hour in range(length))


def mail_server(url: str) -> dict[str, Any]:
    """Django's settings for the mail server at ``url``: ``smtp://user:password@host:port`` or ``smtps://…``.

    ``smtps`` is TLS from the first byte (port 465); ``smtp://…?tls=true`` changes to TLS by STARTTLS.
    """
    parts, options = urlsplit(url), {}
    try:
        port = parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        is_known = parts.scheme in ("smtp", "smtps") and options.keys() <= {"tls"} and bool(parts.hostname)
        is_known = is_known and options.get("tls", "false") in ("true", "false")
    except ValueError:
        port, is_known = None, False
    if not is_known:
        shown = f"{parts.scheme}://…"  # the rest may be a password
        wanted = "smtp://user:password@host:25, the same with ?tls=true for STARTTLS, or smtps://user:password@host:465"
        raise ImproperlyConfigured(f"SPM_SMTP_URL is {shown!r} and names no mail server. Use {wanted}.")
    return {
        "EMAIL_HOST": unquote(parts.hostname or ""),
        "EMAIL_PORT": port or (465 if parts.scheme == "smtps" else 25),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and options.get("tls") == "true",
    }


def own_hosts(base_url: str) -> list[str]:
    """The host names by which requests always reach this machine: those of its own programs, and that of the site."""
    return ["localhost", "127.0.0.1", "[::1]", socket.gethostname(), urlsplit(base_url).hostname or "localhost"]
