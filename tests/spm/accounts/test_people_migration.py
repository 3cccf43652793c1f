"""The migration to accounts with addresses and sessions keeps those that there were."""

from importlib import import_module

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client

migration = import_module("spm.accounts.migrations.0010_people")
pytestmark = pytest.mark.django_db


def test_the_addresses_that_staff_have_given_are_confirmed_once() -> None:
    first, _, nobody = (User.objects.create_user(name, email=email) for name, email in PEOPLE)
    for _ in range(2):
        migration.confirm_addresses(apps, None)
    rows = EmailAddress.objects.values_list("user_id", "email", "verified", "primary")
    assert list(rows) == [(first.pk, "ada@example.org", True, True)]
    assert nobody.email == ""


def test_a_session_that_began_before_stays_good_and_can_be_ended() -> None:
    person, browser = User.objects.create_user("ada"), Client()
    browser.force_login(person)
    UserSession.objects.all().delete()
    migration.note_sessions(apps, None)
    row = UserSession.objects.get(user=person)
    assert browser.get("/account/security").status_code == 200
    row.end()
    assert browser.get("/account/security")["Location"].startswith("/login")


PEOPLE = [("ada", "Ada@example.org"), ("ada2", "ada@example.org"), ("bot", "")]
