"""The pages of an organisation: what acts note, invitations, tokens, the audit log, and what strangers get."""

import re
from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import Outbox
from spm.accounts import tokens
from spm.accounts.models import App, AuditEntry, Invitation, Membership, Role, Token
from spm.accounts.organisations import invitations, members
from spm.accounts.organisations.limits import INVITATION_MS, TOKEN_OVERLAP_MS
from spm.accounts.services import issue_token, rotate_token
from spm.clock import FakeClock, SystemClock
from tests.frontend.rights_table import ACTS, Row
from tests.frontend.site_walk import address_of, fill_world
from tests.support import process_state
from tests.support.people import Tenant

DAY = timedelta(days=1)


@pytest.fixture
def people(alpha: Tenant, beta: Tenant) -> dict[str, User]:
    """A person of each role; a second owner, so that the first one may leave; one of another organisation."""
    everyone = {"owner": alpha.owner, "viewer": alpha.viewer, "outsider": beta.owner}
    for role in ("admin", "editor"):
        everyone[role] = User.objects.create_user(f"{role}@alpha.example", password="correct horse")
        Membership.objects.create(organisation=alpha.organisation, user=everyone[role], role=role)
    other = User.objects.create_user("second@alpha.example")
    Membership.objects.create(organisation=alpha.organisation, user=other, role=Role.OWNER)
    return everyone


@pytest.fixture
def values(alpha: Tenant, people: dict[str, User]) -> dict[str, str]:
    """The numbers that forms name."""
    return fill_world(alpha)


def browser_of(role: str, people: dict[str, User]) -> Client:
    browser = Client()
    if role in people:
        browser.force_login(people[role])
    return browser


@pytest.mark.parametrize("row", ACTS, ids=str)
def test_each_act_is_noted_with_the_address_it_came_from(desk: Client, values: dict[str, str], row: Row) -> None:
    before = AuditEntry.objects.count()
    assert desk.post(address_of(row.route, values), row.form(values)).status_code == row.status
    assert AuditEntry.objects.count() > before
    assert AuditEntry.objects.first().address == "127.0.0.1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "row", [row for row in ACTS if set(row.body) & {"invitation", "member", "app", "token"}], ids=str
)
def test_an_owner_cannot_reach_into_another_organisation(beta: Tenant, values: dict[str, str], row: Row) -> None:
    browser = Client()
    browser.force_login(beta.owner)
    answer = browser.post(address_of(row.route, {**values, "org": str(beta.organisation.pk)}), row.form(values))
    assert answer.status_code == 404
    assert b"alpha" not in answer.content


def test_an_admin_neither_makes_nor_changes_an_owner(alpha: Tenant, people: dict[str, User]) -> None:
    admin, owner = Membership.objects.get(user=people["admin"]), Membership.objects.get(user=alpha.owner)
    browser, page = browser_of("admin", people), f"/org/{alpha.organisation.pk}/settings/members"
    for form in ({"member": owner.pk, "act": "remove"}, {"member": admin.pk, "act": "role", "role": "owner"}):
        assert "Only people with the role owner" in browser.post(page, form, follow=True).content.decode()
    browser.post(page, {"act": "invite", "emails": "x@example.org", "role": "owner"})
    assert not Invitation.objects.exists()


def test_the_last_owner_stays_and_is_told_why(desk: Client, alpha: Tenant) -> None:
    page = f"/org/{alpha.organisation.pk}/settings/members"
    owner, viewer = Membership.objects.get(user=alpha.owner), Membership.objects.get(user=alpha.viewer)
    assert "Make another member an owner first" in desk.post(page, {"act": "leave"}, follow=True).content.decode()
    desk.post(page, {"act": "transfer", "member": viewer.pk})
    owner.refresh_from_db()
    viewer.refresh_from_db()
    assert (owner.role, viewer.role) == ("admin", "owner")
    assert desk.post(page, {"act": "leave"})["Location"] == "/"
    assert desk.get(page).status_code == 404


def test_a_removed_member_gets_404_with_the_next_request_and_their_tokens_end(
    desk: Client, alpha: Tenant, people: dict[str, User]
) -> None:
    editor = browser_of("editor", people)
    _, secret = issue_token(people["editor"], alpha.app, name="own", scopes=["ingest"])
    assert editor.get(f"/apps/{alpha.app.pk}/add-data").status_code == 200
    member = Membership.objects.get(user=people["editor"])
    desk.post(f"/org/{alpha.organisation.pk}/settings/members", {"act": "remove", "member": member.pk, "revoke": "on"})
    assert editor.get(f"/apps/{alpha.app.pk}/add-data").status_code == 404
    assert editor.get(f"/api/v1/apps/{alpha.app.pk}/sources").status_code == 404
    assert tokens.authenticate(secret, "ingest") is None


def invitation_link(email: str = "guest@example.org") -> str:
    body = Outbox.objects.get(payload__receivers=[email]).payload["body"]
    match = re.search(r"https?://[^/\s]+(/invitations/\S+)", body)
    assert match, body
    return match[1]


def invite(desk: Client, alpha: Tenant, role: str = "editor") -> str:
    form = {"act": "invite", "emails": "Guest@example.org", "role": role}
    desk.post(f"/org/{alpha.organisation.pk}/settings/members", form)
    return invitation_link()


def test_an_invited_person_joins_with_a_new_account_where_sign_up_is_by_invitation(desk: Client, alpha: Tenant) -> None:
    link, guest = invite(desk, alpha), Client()
    assert "without an invitation" in guest.get("/signup").content.decode()
    assert guest.get(link)["Location"] == "/invitation"
    assert not Invitation.objects.exclude(accepted=None).exists(), "opening a link changes nothing"
    assert guest.post("/signup", {"email": "other@example.org", "password1": "four green lamps 9"}).status_code == 200
    guest.post("/signup", {"email": "guest@example.org", "password1": "four green lamps 9"})
    member = Membership.objects.get(user__username="guest@example.org")
    assert (member.organisation, member.role) == (alpha.organisation, "editor")
    assert EmailAddress.objects.get(user=member.user).verified
    assert guest.get(f"/apps/{alpha.app.pk}/add-data").status_code == 200


def test_an_invitation_works_once_and_for_its_address_alone(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    link, stranger, guest = invite(desk, alpha), Client(), Client()
    stranger.force_login(beta.owner)
    stranger.get(link)
    assert "for another address" in stranger.post("/invitation", follow=True).content.decode()
    user = User.objects.create_user("guest", email="guest@example.org")
    guest.force_login(user)
    guest.get(link)
    assert guest.post("/invitation")["Location"] == "/"
    assert Membership.objects.get(user=user).role == "editor"
    guest.get(link)
    assert "not valid" in guest.get("/invitation").content.decode()


@pytest.mark.parametrize("how", ["revoked", "expired", "sent again", "of a deleted organisation", "made up"])
def test_an_invitation_that_is_over_lets_nobody_in(
    desk: Client, alpha: Tenant, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, page = invite(desk, alpha), f"/org/{alpha.organisation.pk}/settings/"
    number = Invitation.objects.get().pk
    if how in ("revoked", "sent again"):
        desk.post(page + "members", {"act": "revoke" if how == "revoked" else "resend", "invitation": number})
    elif how == "expired":
        later = FakeClock(SystemClock().now_ms() + INVITATION_MS + 1_000)
        monkeypatch.setattr(invitations, "_clock", later)
    elif how == "made up":
        link = "/invitations/" + "x" * 32
    else:
        desk.post(page + "general", {"act": "delete", "confirm": "alpha"})
    guest = Client()
    guest.force_login(User.objects.create_user("guest", email="guest@example.org"))
    guest.get(link)
    guest.post("/invitation")
    assert not Membership.objects.filter(user__username="guest").exists()


def test_the_secret_of_an_invitation_is_not_in_the_database(desk: Client, alpha: Tenant) -> None:
    secret = invite(desk, alpha).rpartition("/")[2]
    assert secret not in str(list(Invitation.objects.values()))


def test_a_rotated_token_works_beside_its_successor_for_a_while(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    token, old = issue_token(alpha.owner, alpha.app, name="n", scopes=["ingest"], days=30)
    new, secret = rotate_token(alpha.owner, token)
    process_state.forget_tokens()
    assert tokens.authenticate(old, "ingest")
    assert tokens.authenticate(secret, "ingest")
    assert new.scopes == "ingest"
    later = FakeClock(SystemClock().now_ms() + TOKEN_OVERLAP_MS + 60_000)
    process_state.forget_tokens()
    assert tokens.authenticate(old, "ingest", later) is None
    assert tokens.authenticate(secret, "ingest", later)


def test_a_new_token_is_shown_once_and_has_an_end_unless_it_is_for_ever(desk: Client, alpha: Tenant) -> None:
    page = f"/org/{alpha.organisation.pk}/settings/tokens"
    form = {"act": "create", "app": alpha.app.pk, "name": "backup", "scopes": ["ingest", "read"], "days": "365"}
    answer = desk.post(page, form)
    token = Token.objects.get(name="backup")
    assert token.prefix + "_" in answer.content.decode()
    assert answer["Cache-Control"] == "no-store"
    assert token.prefix + "_" not in desk.get(page).content.decode()
    assert token.expires is not None
    assert (token.scopes, token.created_by) == ("ingest read", alpha.owner)
    assert round((token.expires - token.created) / DAY) == 365


def test_the_audit_log_is_filtered_and_downloads_without_formulas(desk: Client, alpha: Tenant) -> None:
    page = f"/org/{alpha.organisation.pk}/settings/"
    for name in ("=cmd()", "Plain"):
        desk.post(page + "apps", {"act": "create", "name": name})
    assert desk.get(page + "audit?what=Plain").content.decode().count("app created") == 1
    lines = b"".join(desk.get(page + "audit?form=csv")).decode().splitlines()
    assert lines[0] == "time,who,action,subject,address,detail"
    assert ",app created,'=cmd()," in lines[2]
    assert "Nothing has been done" not in desk.get(page + "audit?since=2999-01-01").content.decode()
    assert "No entry matches" in desk.get(page + "audit?since=2999-01-01").content.decode()


def test_a_deleted_organisation_is_gone_for_its_people_and_its_tokens_end(desk: Client, alpha: Tenant) -> None:
    page = f"/org/{alpha.organisation.pk}/settings/general"
    assert "was not typed" in desk.post(page, {"act": "delete", "confirm": "x"}, follow=True).content.decode()
    assert desk.post(page, {"act": "delete", "confirm": "alpha"})["Location"] == "/"
    assert desk.get(page).status_code == 404
    assert App.objects.filter(going=None, organisation=alpha.organisation).count() == 0
    assert tokens.authenticate(alpha.token, "read") is None


def test_only_one_of_two_owners_who_leave_goes(alpha: Tenant, people: dict[str, User]) -> None:
    owners = list(Membership.objects.filter(organisation=alpha.organisation, role=Role.OWNER))
    members.leave(owners[0])
    with pytest.raises(Exception, match="at least one owner"):
        members.leave(owners[1])


def test_the_menu_of_apps_leads_to_the_settings_of_their_organisation(desk: Client, alpha: Tenant) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/").content.decode()
    menu = page[page.index('<details class="menu" name="bar">') : page.index("<nav")]
    assert f'href="/org/{alpha.organisation.pk}/settings/members"' in menu
