"""The first organisation of a new installation, and how its owner logs in.

``create_demo`` is called at every start and changes nothing the second time. What it made up at the first start is kept
in two files of the data folder, readable by their owner only:

    first-login.json    {url, login, password, app, token}, until the password is changed
    agent-token         the secret of this host's own agent

Files are written before the transaction commits: a crash in between leaves a file without an account, which the next
start replaces, and never an account whose password nobody knows.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from spm.accounts import tokens
from spm.accounts.models import App, Membership, Organisation, Role, Token
from spm.clock import random_bytes

LOGIN = "admin@example.org"
ORGANISATION = "Demo"
APP = "This host"
AGENT_TOKEN_NAME = "This host's agent"
USER_TOKEN_NAME = "First token"
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that are mistaken for others


def create_demo(data_dir: Path, url: str) -> dict[str, Any]:
    """Make the demo organisation if there is no organisation yet; say how to log in, null where no longer known.

    Returns ``url, login, password, app, token`` and ``agent_token`` (null when no app is meant for this host).
    """
    with transaction.atomic():
        known = (
            _known_login(data_dir, url)
            if Organisation.objects.filter(internal=False).exists()
            else _create(data_dir, url)
        )
        return {**known, "agent_token": _agent_token(data_dir)}


def forget_first_login(data_dir: Path, user: User) -> None:
    """The person has a new password: what the file says is wrong now, so it goes."""
    if _read(data_dir).get("login") == user.get_username():
        _login_file(data_dir).unlink(missing_ok=True)


def _create(data_dir: Path, url: str) -> dict[str, Any]:
    password = _password()
    user = User.objects.create_user(LOGIN, email=LOGIN, password=password, is_staff=True, is_superuser=True)
    organisation = Organisation.objects.create(name=ORGANISATION)
    Membership.objects.create(organisation=organisation, user=user, role=Role.OWNER)
    app = App.objects.create(organisation=organisation, name=APP)
    _, token = tokens.issue(app, name=USER_TOKEN_NAME, scopes=("ingest", "read"))
    _issue_agent_token(app, data_dir)
    login = {"url": url, "login": LOGIN, "password": password, "app": app.pk, "token": token}
    _write(_login_file(data_dir), json.dumps(login) + "\n")
    return login


def _known_login(data_dir: Path, url: str) -> dict[str, Any]:
    """What the file still says, if its password still opens the account; the address is always today's."""
    kept = _read(data_dir)
    user = User.objects.filter(username=kept.get("login", "")).first()
    if user is not None and user.check_password(kept.get("password", "")):
        if kept.get("url") != url:
            _write(_login_file(data_dir), json.dumps({**kept, "url": url}) + "\n")
        return {**kept, "url": url}
    _login_file(data_dir).unlink(missing_ok=True)
    owner = Membership.objects.filter(role=Role.OWNER).select_related("user").order_by("pk").first()
    app = App.objects.filter(organisation__internal=False).order_by("pk").first()
    login = owner.user.get_username() if owner else None
    return {"url": url, "login": login, "password": None, "app": app.pk if app else None, "token": None}


def _agent_token(data_dir: Path) -> str | None:
    """This host's agent token; a new one replaces one whose secret is lost, unless its app is gone."""
    with contextlib.suppress(OSError):
        secret = _agent_file(data_dir).read_text().strip()
        if tokens.authenticate(secret, "ingest"):
            return secret
    lost = list(Token.objects.filter(name=AGENT_TOKEN_NAME, revoked=None).select_related("app").order_by("pk"))
    for token in lost:
        tokens.revoke(token)
    return _issue_agent_token(lost[0].app, data_dir) if lost else None


def _issue_agent_token(app: App, data_dir: Path) -> str:
    _, secret = tokens.issue(app, name=AGENT_TOKEN_NAME, scopes=("ingest",))
    _write(_agent_file(data_dir), secret + "\n")
    return secret


def _login_file(data_dir: Path) -> Path:
    return data_dir / "first-login.json"


def _agent_file(data_dir: Path) -> Path:
    return data_dir / "agent-token"


def _read(data_dir: Path) -> dict[str, Any]:
    try:
        kept = json.loads(_login_file(data_dir).read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner only from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _password() -> str:
    """Four groups of five: 99 bits, easy to type off a screen."""
    letters = [_LETTERS[byte % len(_LETTERS)] for byte in random_bytes(64) if byte < 248][:20]
    assert len(letters) == 20, "BUG: 64 random bytes gave fewer than 20 letters"
    return "-".join("".join(letters[start : start + 5]) for start in range(0, 20, 5))
