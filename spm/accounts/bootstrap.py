"""Creates the first organisation of a new installation, with the login of its owner.

Enter by ``create_demo``, which is called at every start and changes nothing the second time. The secrets that it
generates at the first start are stored in two files of the data folder, readable by their owner only:

    first-login.json    {url, login, password, app, token}, until the password is changed
    agent-token         the secret of this host's own agent

The files are written before the transaction commits: a crash in between leaves a file without a user, which the next
start replaces, and never a user whose password nobody knows.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from allauth.account.models import EmailAddress
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
_CHARACTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look like others


def create_demo(data_dir: Path, url: str) -> dict[str, Any]:
    """Create the demo organisation if there is no organisation yet, and return how to log in.

    Returns ``url, login, password, app, token`` and ``agent_token``; each is None where it is not known any more, and
    the last one when this host's app is deleted.
    """
    with transaction.atomic():
        login = (
            _known_login(data_dir, url)
            if Organisation.objects.filter(internal=False).exists()
            else _create(data_dir, url)
        )
        return {**login, "agent_token": _agent_token(data_dir)}


def forget_first_login(data_dir: Path, user: User) -> None:
    """Remove the file with the first password, if it is this person's: the password has changed."""
    if _read(data_dir).get("login") == user.get_username():
        _login_file(data_dir).unlink(missing_ok=True)


def _create(data_dir: Path, url: str) -> dict[str, Any]:
    password = _password()
    user = User.objects.create_user(LOGIN, email=LOGIN, password=password, is_staff=True, is_superuser=True)
    EmailAddress.objects.create(user=user, email=LOGIN, verified=True, primary=True)
    organisation = Organisation.objects.create(name=ORGANISATION)
    Membership.objects.create(organisation=organisation, user=user, role=Role.OWNER)
    app = App.objects.create(organisation=organisation, name=APP)
    _, token = tokens.issue(app, name=USER_TOKEN_NAME, scopes=("ingest", "read"))
    _issue_agent_token(app, data_dir)
    login = {"url": url, "login": LOGIN, "password": password, "app": app.pk, "token": token}
    _write(_login_file(data_dir), json.dumps(login) + "\n")
    return login


def _known_login(data_dir: Path, url: str) -> dict[str, Any]:
    """The content of the file if its password is still valid, with the present address."""
    stored = _read(data_dir)
    user = User.objects.filter(username=stored.get("login", "")).first()
    if user is not None and user.check_password(stored.get("password", "")):
        if stored.get("url") != url:
            _write(_login_file(data_dir), json.dumps({**stored, "url": url}) + "\n")
        return {**stored, "url": url}
    _login_file(data_dir).unlink(missing_ok=True)
    owner = Membership.objects.filter(role=Role.OWNER).select_related("user").order_by("pk").first()
    app = App.objects.filter(organisation__internal=False).order_by("pk").first()
    login = owner.user.get_username() if owner else None
    return {"url": url, "login": login, "password": None, "app": app.pk if app else None, "token": None}


def _agent_token(data_dir: Path) -> str | None:
    """This host's agent token; a new one replaces one whose secret is lost, unless its app is deleted."""
    with contextlib.suppress(OSError):
        secret = _agent_file(data_dir).read_text().strip()
        if tokens.authenticate(secret, "ingest"):
            return secret
    unusable = list(Token.objects.filter(name=AGENT_TOKEN_NAME, revoked=None).select_related("app").order_by("pk"))
    for token in unusable:
        tokens.revoke(token)
    return _issue_agent_token(unusable[0].app, data_dir) if unusable else None


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
        content = json.loads(_login_file(data_dir).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, text: str) -> None:
    """Replace the file in one step; only its owner can read it at any time."""
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
    characters = [_CHARACTERS[byte % len(_CHARACTERS)] for byte in random_bytes(64) if byte < 248][:20]
    assert len(characters) == 20, "BUG: 64 random bytes gave fewer than 20 letters"
    return "-".join("".join(characters[start : start + 5]) for start in range(0, 20, 5))
