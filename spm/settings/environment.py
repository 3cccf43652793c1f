"""What the environment says: the one place that reads ``os.environ`` and ``.env``.

Every name is documented in ``.env.example``, with its default. The two secrets come from the environment or from the
files that ``bin/start`` writes into the data folder; without them the settings refuse to load, so that no installation
ever runs on a key that stands in a repository.
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
    """The secret ``name``: from the environment, else from ``file`` in the data folder; raises when there is none."""
    given: str = env.str(name, "")
    if given:
        return given
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
    """SQLite as several processes need it: a write-ahead log, writers that queue up at BEGIN, and every commit synced.

    A deferred transaction that turns into a writer fails at once when another has written meanwhile, whatever the
    time-out: ``IMMEDIATE`` takes the lock first and waits.
    """
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000"
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}


def own_hosts(base_url: str) -> list[str]:
    """The names under which this machine may be asked for, when nobody said otherwise."""
    return ["localhost", "127.0.0.1", "[::1]", socket.gethostname(), urlsplit(base_url).hostname or "localhost"]
