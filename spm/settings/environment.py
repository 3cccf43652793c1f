"""Reads the settings from ``os.environ`` and ``.env``; no other settings module does.

Every variable is documented in ``.env.example``, with its default. The two secrets come from the environment or from
files that ``bin/start`` writes into the data folder; without them the settings do not load, so that no installation
ever runs on a key from a repository. Enter by ``env``, ``secret`` and ``database``.
"""

import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from environs import Env

BASE_DIR = Path(__file__).resolve().parents[2]

env = Env()
env.read_env(env.str("SPM_DOTENV", str(BASE_DIR / ".env")), recurse=False)

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
    """Django's description of the database at ``url`` (``sqlite:///path`` or ``postgres://user:password@host/name``)."""
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


def own_hosts(base_url: str) -> list[str]:
    """The default host names by which requests may reach this machine."""
    return ["localhost", "127.0.0.1", "[::1]", socket.gethostname(), urlsplit(base_url).hostname or "localhost"]
