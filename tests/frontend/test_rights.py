"""Every address of the site answers each person and each program as the table of rights says: a walk over all of them.

None fails on a NUL either, which PostgreSQL does not store.

The addresses come from the site's own URLs. One that is new has no row in ``rights_table`` and fails here.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import get_resolver

from spm.accounts import tokens
from spm.accounts.models import Membership, Role
from spm.accounts.organisations import rights
from spm.accounts.organisations.rights import Right
from tests.frontend.rights_table import ROWS, Row, Who
from tests.frontend.site_walk import METHODS, Caller, address_of, fill_world, routes
from tests.support.people import Tenant

ROOT = Path(__file__).resolve().parents[2]
# The owner's walk runs what every address does on each database; the others are mostly refused, by the table of rights.
PEOPLE = (
    *(pytest.param(name, marks=pytest.mark.one_database) for name in ("nobody", "outsider", "staff", "viewer")),
    *(pytest.param(name, marks=pytest.mark.one_database) for name in ("editor", "admin")),
    "owner",
)
ROLE_OF_SCOPE = {"ingest": None, "events": None, "read": "viewer", "write": "editor", "admin": "admin"}
SCOPES = [*(pytest.param(name, marks=pytest.mark.one_database) for name in ROLE_OF_SCOPE if name != "admin"), "admin"]
LOGIN = "login"
_PARAMETERS = (  # of addresses
    *(
        "after",
        "app",
        "before",
        "by",
        "content",
        "device",
        "expr",
        "file",
        "form",
        "format",
        "host",
        "hours",
        "kind",
        "known",
    ),
    *(
        "labels",
        "matchers",
        "metric",
        "name",
        "next",
        "p",
        "q",
        "query",
        "reason",
        "report",
        "rule",
        "sort",
        "state",
        "view",
    ),
)


@pytest.fixture
def values(alpha: Tenant) -> dict[str, str]:
    """What addresses name."""
    Client().get("/login")  # the URLs are loaded
    return fill_world(alpha)


def person_of(name: str, alpha: Tenant, beta: Tenant) -> User | None:
    """One person of each name."""
    if name in ("editor", "admin"):
        person = User.objects.create_user(f"{name}@alpha.example")
        Membership.objects.create(organisation=alpha.organisation, user=person, role=name)
        return person
    staff = User.objects.create_user("staff@example.org", is_staff=True)
    return {"nobody": None, "outsider": beta.owner, "staff": staff}.get(name, getattr(alpha, name, None))


def is_json(route: str) -> bool:
    return route.startswith(("/api/v1/", "/api/v2/silence")) and not route.endswith("/export")


def ask(caller: Caller, row: Row, values: dict[str, str]) -> tuple[int | str, bool]:
    """The status of the answer, or that it leads to the login; and whether the audit log notes it."""
    names_app = any(part in row.route for part in ("/apps/<", "organisation_id"))
    query = "&".join(part for part in (row.query, "" if names_app else f"app={values['apps']}") if part)
    address = f"{address_of(row.route, values)}?{query}"
    answer, noted = caller.ask(row.method, address, row.form(values), is_json=is_json(row.route))
    return LOGIN if leads_to_login(answer) else answer.status_code, noted


def leads_to_login(answer: HttpResponse) -> bool:
    return answer.status_code == 302 and answer["Location"].startswith("/login")


def expected(name: str, row: Row) -> int | str | None:
    """The answer that the table promises a person; None: any of the library's."""
    stranger = 401 if row.route.startswith(("/api/", "/prometheus/")) else LOGIN
    if isinstance(row.who, Right):
        if name == "nobody":
            return stranger
        if name in ("outsider", "staff"):
            return 404
        return row.status if rights.may(name, row.who) else 403
    match row.who:
        case Who.SENDER | Who.READER:
            return 401
        case Who.STAFF:
            return {"nobody": 401, "staff": row.status}.get(name, 403)
        case Who.PERSON | Who.ACCOUNT if name == "nobody":
            return stranger
        case _:
            return row.status


def differs(answer: int | str, wanted: int | str | None) -> bool:
    return answer not in (200, 302, 400, 401, 403, 404, 405, LOGIN) if wanted is None else answer != wanted


@pytest.mark.parametrize("name", PEOPLE)
def test_every_address_answers_a_person_as_the_table_says(
    alpha: Tenant, beta: Tenant, values: dict[str, str], name: str
) -> None:
    caller, wrong = Caller(person_of(name, alpha, beta)), {}
    for row in ROWS:
        answer, noted = ask(caller, row, values)
        if differs(answer, expected(name, row)):
            wrong[str(row)] = (answer, expected(name, row))
        elif noted and isinstance(row.who, Right) and answer in (401, 403, 404, LOGIN):
            wrong[str(row)] = (answer, "refused, and noted as done")
    assert wrong == {}


@pytest.mark.one_database
def test_every_address_asks_for_the_right_of_its_row(
    alpha: Tenant, beta: Tenant, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, wrong = Caller(person_of("admin", alpha, beta)), {}
    for row in ROWS:
        if not isinstance(row.who, Right):
            continue
        is_owners = row.who.lowest_role == Role.OWNER
        with monkeypatch.context() as patch:
            patch.setattr(row.who, "lowest_role", Role.ADMIN if is_owners else Role.OWNER)
            answer, _ = ask(caller, row, values)
        if answer != (row.status if is_owners else 403):
            wrong[str(row)] = answer
    assert wrong == {}


@pytest.mark.parametrize("scope", SCOPES)
def test_every_interface_answers_a_program_as_its_scope_says(alpha: Tenant, values: dict[str, str], scope: str) -> None:
    caller, role, wrong = Caller(token=tokens.issue(alpha.app, name="r", scopes=[scope])[1]), ROLE_OF_SCOPE[scope], {}
    for row in ROWS:
        if not row.route.startswith(("/api/", "/prometheus/")) or row.who in (Who.SENDER, Who.EVERYBODY):
            continue
        in_person = "/organisations" in row.route or row.route.endswith("/star")
        needed = row.who if isinstance(row.who, Right) else Right.SEE_APP
        may = needed.scope is not None and role is not None and rights.may(role, needed) and not in_person
        wanted = 401 if role is None else row.status if may else 403
        if row.who is Right.POST_EVENT:  # it has a scope of its own
            wanted = row.status if scope in ("events", "write", "admin") else 401
        answer, _ = ask(caller, row, values)
        if answer != wanted:
            wrong[str(row)] = (answer, wanted)
    assert wrong == {}


def test_the_table_has_every_address_and_no_other(values: dict[str, str]) -> None:
    every = {route for route in routes(get_resolver().url_patterns) if not route.startswith("/admin/")}
    listed = {row.route for row in ROWS if "{" not in row.route}
    assert (every - listed, listed - every) == (set(), set())
    assert {row.who for row in ROWS} >= set(Right), "each right opens something"


@pytest.mark.one_database
def test_an_address_takes_no_method_that_the_table_does_not_have(alpha: Tenant, values: dict[str, str]) -> None:
    caller, listed = Caller(alpha.owner), {(row.method, row.route) for row in ROWS}
    decided = {row.route for row in ROWS if isinstance(row.who, Right) or row.who is Who.PERSON}
    rest = {(method, route) for method in METHODS for route in decided if "{" not in route} - listed
    answers: dict[tuple[str, str], Any] = {
        (method, route): ask(caller, Row(method, route, Who.PERSON), values)[0] for method, route in sorted(rest)
    }
    assert {each: answer for each, answer in answers.items() if answer != 405} == {}


def test_the_administration_is_for_staff(desk: Client) -> None:
    routes_of_admin = [route for route in routes(get_resolver().url_patterns) if route.startswith("/admin/")]
    open_ones = ("login/", "logout/", "jsi18n/")
    for route in routes_of_admin:
        address = re.sub(r"<(?:\w+:)?\w+>", "1", route)
        if "^" in address or "(" in address or address.endswith(open_ones):
            continue
        answer = desk.get(address)
        assert answer.status_code in (301, 302), address
        assert answer["Location"].startswith(("/login", "/admin/")), address


def test_templates_ask_for_rights_that_there_are() -> None:
    names = {right.name.lower() for right in Right}
    names_used: set[str] = set()
    for folder in ("frontend/templates", "alerts/templates"):
        for path in (ROOT / folder).rglob("*.html"):
            names_used |= set(re.findall(r"\brights\.(\w+)", path.read_text()))
    assert len(names_used) > 10
    assert names_used <= names


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("where", ["path", "query"])
def test_no_address_fails_on_a_nul(alpha: Tenant, values: dict[str, str], where: str, method: str) -> None:
    owner, failed = Caller(alpha.owner), []
    query = "&".join(f"{name}=%00" for name in _PARAMETERS)
    for route in routes(get_resolver().url_patterns):
        odd = re.sub(r"<(?:(?:str|path|host|slug):)?\w+>$", "%00", route)
        address = address_of(odd, values) if where == "path" else f"{address_of(route, values)}?{query}"
        if where == "path" and odd == route:
            continue
        answer, _ = owner.ask(method, address, {}, is_json=is_json(route))
        if answer.status_code >= 500:
            failed.append((answer.status_code, address))
    assert failed == []
