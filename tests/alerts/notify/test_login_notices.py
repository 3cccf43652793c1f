"""A notice about wrong logins becomes one mail to the account's owner, and shows on no page of an app."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from alerts import tasks
from alerts.models import Delivery, Outbox
from alerts.notify import login_notices, registry
from spm.accounts.models import LoginNotice
from tests.support.people import Tenant, make_tenant

pytestmark = pytest.mark.django_db
NOW = 1_700_000_000_000


@pytest.fixture
def tenant(db: None) -> Tenant:
    """Whose owner has a mail address."""
    tenant = make_tenant("alpha")
    User.objects.filter(pk=tenant.owner.pk).update(email="ada@example.org")
    return tenant


def notice_to(tenant: Tenant) -> LoginNotice:
    return LoginNotice.objects.create(user=tenant.owner, address="198.51.100.1", device="0f" * 16, at_ms=NOW)


def test_a_notice_is_mailed_once_with_a_link_for_the_owners_browser(tenant: Tenant, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    notice_to(tenant)
    for _ in range(2):
        tasks.deliver_outbox()
    [message] = mail.outbox
    assert message.to == ["ada@example.org"]
    assert message.subject == "[SPM] Wrong logins for owner@alpha.example"
    assert f"{settings.SPM_BASE_URL}/login?device={'0f' * 16}\n" in message.body
    assert "198.51.100.1" in message.body
    assert "2023-11-14 22:13:20 UTC" in message.body
    assert (LoginNotice.objects.count(), Outbox.objects.get().state) == (0, Delivery.SENT)


def test_a_notice_that_another_process_has_moved_is_not_moved_again(tenant: Tenant) -> None:
    notice = notice_to(tenant)
    assert login_notices.collect(NOW) == 1
    assert login_notices._move(notice, NOW) is False
    assert Outbox.objects.count() == 1


def test_a_mail_to_a_person_is_on_no_page_of_an_app(client: Client, tenant: Tenant) -> None:
    notice_to(tenant)
    login_notices.collect(NOW)
    client.force_login(tenant.owner)
    page = client.get("/alerts/notifications", {"app": str(tenant.app.pk)})
    assert "Wrong logins" not in page.content.decode()


def test_the_admin_lists_it_among_the_others(client: Client, tenant: Tenant) -> None:
    notice_to(tenant)
    login_notices.collect(NOW)
    client.force_login(User.objects.create_superuser("operator"))
    assert Outbox.objects.get().key in client.get("/admin/alerts/outbox/").content.decode()


def test_no_rule_can_send_mail_of_accounts() -> None:
    assert registry.kind_of("ada@example.org") == "mail"
    assert registry.receiver_hints().startswith("mail address")


def test_a_person_whose_address_is_none_gets_a_dead_message(tenant: Tenant, settings: Any) -> None:
    User.objects.filter(pk=tenant.owner.pk).update(email="not an address")
    tenant.owner.refresh_from_db()
    notice_to(tenant)
    tasks.deliver_outbox()
    assert (Outbox.objects.get().state, Outbox.objects.get().error) == (
        Delivery.DEAD,
        "this person has no mail address",
    )
