"""The first start, the second start, and the end of the first password."""

import json
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from spm.accounts import bootstrap, tokens
from spm.accounts.models import App, Membership, Organisation, Token
from spm.accounts.services import password_changed

pytestmark = pytest.mark.django_db
URL = "http://localhost:8000"


def login_file(folder: Path) -> Path:
    """Where the first password stands."""
    return folder / "first-login.json"


def test_the_first_start_makes_an_owner_who_can_log_in(tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, URL)
    user = User.objects.get(username=login["login"])
    assert user.check_password(login["password"])
    assert Membership.objects.get(user=user).role == "owner"


def test_the_tokens_hold_for_the_demo_app(tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, URL)
    mine, agent = (tokens.authenticate(login[name], "ingest") for name in ("token", "agent_token"))
    assert mine is not None
    assert agent is not None
    assert mine.app_id == agent.app_id == login["app"]
    assert tokens.authenticate(login["token"], "read")
    assert tokens.authenticate(login["agent_token"], "read") is None


def test_the_second_start_changes_nothing_but_the_address(tmp_path: Path) -> None:
    first = bootstrap.create_demo(tmp_path, URL)
    second = bootstrap.create_demo(tmp_path, "http://localhost:9000")
    assert second == {**first, "url": "http://localhost:9000"}
    assert (Organisation.objects.count(), App.objects.count(), Token.objects.count()) == (1, 1, 2)


def test_the_files_are_for_their_owner_only_and_say_what_is_promised(tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, URL)
    stored = json.loads(login_file(tmp_path).read_text())
    assert stored == {name: login[name] for name in ("url", "login", "password", "app", "token")}
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("first-login.json", "agent-token")}
    assert modes == {0o600}


def test_a_changed_password_removes_the_file_and_is_no_longer_shown(tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, URL)
    user = User.objects.get(username=login["login"])
    user.set_password("something of my own")
    user.save()
    password_changed(user, tmp_path, address="192.0.2.1")
    assert not login_file(tmp_path).exists()
    later = bootstrap.create_demo(tmp_path, URL)
    assert (later["login"], later["password"], later["token"]) == (login["login"], None, None)
    assert later["agent_token"] == login["agent_token"]


def test_a_password_changed_behind_our_back_is_noticed_at_the_next_start(tmp_path: Path) -> None:
    login = bootstrap.create_demo(tmp_path, URL)
    user = User.objects.get(username=login["login"])
    user.set_password("by another way")
    user.save()
    assert bootstrap.create_demo(tmp_path, URL)["password"] is None
    assert not login_file(tmp_path).exists()


def test_another_persons_password_leaves_the_file(tmp_path: Path) -> None:
    bootstrap.create_demo(tmp_path, URL)
    password_changed(User.objects.create_user("somebody"), tmp_path, address="192.0.2.1")
    assert login_file(tmp_path).exists()


def test_a_start_that_died_before_its_commit_is_made_good(tmp_path: Path) -> None:
    login_file(tmp_path).write_text('{"login": "admin@example.org", "password": "never committed"}')
    login = bootstrap.create_demo(tmp_path, URL)
    assert User.objects.get(username=login["login"]).check_password(login["password"])


def test_a_lost_agent_token_is_replaced_and_the_lost_one_ends(tmp_path: Path) -> None:
    first = bootstrap.create_demo(tmp_path, URL)
    (tmp_path / "agent-token").unlink()
    second = bootstrap.create_demo(tmp_path, URL)
    assert tokens.authenticate(first["agent_token"], "ingest") is None
    assert tokens.authenticate(second["agent_token"], "ingest")


def test_an_installation_of_others_gets_no_demo(tmp_path: Path) -> None:
    Organisation.objects.create(name="ours")
    login = bootstrap.create_demo(tmp_path, URL)
    assert login == {"url": URL, "login": None, "password": None, "app": None, "token": None, "agent_token": None}
    assert not User.objects.exists()


@pytest.mark.parametrize("broken", ["", "{", "[]", '"text"'])
def test_a_broken_file_is_no_obstacle(tmp_path: Path, broken: str) -> None:
    bootstrap.create_demo(tmp_path, URL)
    login_file(tmp_path).write_text(broken)
    assert bootstrap.create_demo(tmp_path, URL)["password"] is None


def test_the_command_prints_one_line_of_json(tmp_path: Path, settings: Any) -> None:
    settings.SPM_DATA = tmp_path
    out = StringIO()
    call_command("bootstrap", "--json", "--url", URL, stdout=out)
    assert json.loads(out.getvalue())["login"] == bootstrap.LOGIN


def test_the_command_prints_the_login_and_no_agent_token(tmp_path: Path, settings: Any) -> None:
    settings.SPM_DATA = tmp_path
    out = StringIO()
    call_command("bootstrap", "--url", URL, stdout=out)
    assert f"login: {bootstrap.LOGIN}" in out.getvalue()
    assert "agent_token" not in out.getvalue()
