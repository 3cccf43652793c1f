"""Claims about dead letters: what people see of them, and how their messages come back."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from ingest.accept import process_acceptor as own_acceptor
from ingest.accounting import dead_letter_review
from spm.accounts.models import App, AuditEntry, Organisation
from spm.errors import Refused, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import DeadLetter
from spm.wire import Envelope
from tests.support import process_state
from tests.support.rows import START, envelope

APP = 7


def bury(store: Backend, count: int = 1, *, app: int = APP, of: int | None = None) -> list[str]:
    """Store dead letters, one a millisecond; return their keys, newest first. ``of``: the app in the envelopes."""
    for n in range(count):
        body = envelope([(n, START + 1, n + 0.5), (n, START + 2, 9.0)], app=of or app, message_id=bytes([n]) * 16)
        store.put(
            [
                dead_letters.step(
                    app,
                    1000 + n,
                    bytes([n]) * 16,
                    DeadLetter(dead_letters.MESSAGE, "its hour is sealed", body.to_bytes()),
                )
            ]
        )
    return [stored.key.hex() for stored in dead_letters.newest(store, app, count=count)]


def test_a_letter_shows_its_cause_its_sender_and_its_first_samples() -> None:
    store = MemoryBackend()
    bury(store, 2)
    newest, oldest = dead_letter_review.list_dead_letters(store, APP, count=9)
    assert (newest.ingest_ms, oldest.ingest_ms) == (1001, 1000)
    assert (newest.cause, newest.source, newest.count, newest.series, newest.state) == (
        "its hour is sealed",
        "host",
        2,
        1,
        "waiting",
    )
    assert [(s.series, s.ts_ms, s.value) for s in newest.samples] == [
        ('m1{host="h1"}', START + 1, 1.5),
        ('m1{host="h1"}', START + 2, 9.0),
    ]


def test_pages_of_letters_hold_each_once() -> None:
    store = MemoryBackend()
    keys = bury(store, 5)
    first = dead_letter_review.list_dead_letters(store, APP, count=2)
    second = dead_letter_review.list_dead_letters(store, APP, count=9, before=first[-1].key)
    assert [shown.key for shown in [*first, *second]] == keys


def test_a_replay_pushes_the_message_as_it_was_and_once() -> None:
    store, pushed = MemoryBackend(), list[Envelope]()
    keys = bury(store)
    assert dead_letter_review.replay(store, APP, keys, pushed.append).done == 1
    again = dead_letter_review.replay(store, APP, keys, pushed.append)
    assert (again.done, len(pushed)) == (0, 1)
    assert "replayed already" in again.refused[0]
    assert pushed[0].values.tolist() == [0.5, 9.0]
    assert dead_letter_review.list_dead_letters(store, APP, count=1)[0].state == "replayed"


def test_a_letter_whose_replay_fails_waits_and_the_others_go() -> None:
    store = MemoryBackend()
    keys = bury(store, 3)

    def fails_for_one(message: Envelope) -> None:
        if message.message_id[0] == 1:
            raise Refused("still broken")

    outcome = dead_letter_review.replay(store, APP, keys, fails_for_one)
    assert (outcome.done, len(outcome.refused)) == (2, 1)
    assert [s.state for s in dead_letter_review.list_dead_letters(store, APP, count=9)] == [
        "replayed",
        "waiting",
        "replayed",
    ]
    assert dead_letter_review.count_waiting(store, APP, at_most=9) == 1


def test_a_dismissed_letter_stays_and_is_not_replayed_any_more() -> None:
    store, pushed = MemoryBackend(), list[Envelope]()
    keys = bury(store)
    assert dead_letter_review.dismiss(store, APP, keys).done == 1
    assert dead_letter_review.replay(store, APP, keys, pushed.append).done == 0
    assert (pushed, dead_letter_review.list_dead_letters(store, APP, count=1)[0].state) == ([], "dismissed")


def nothing(store: Backend) -> str:
    return (APP).to_bytes(4, "big").hex() + "00" * 24


def of_another_app(store: Backend) -> str:
    return bury(store, app=APP + 1)[0]


def damaged_row(store: Backend) -> str:
    store.put(
        [
            dead_letters.step(
                APP, 1, b"r" * 16, DeadLetter(dead_letters.ROW, "a block fails its checksum", b"??", "log", b"k")
            )
        ]
    )
    return dead_letters.newest(store, APP, count=1)[0].key.hex()


def with_anothers_message(store: Backend) -> str:
    return bury(store, of=APP + 1)[0]


def damaged_itself(store: Backend) -> str:
    store.put([("dead", [(bytes.fromhex(nothing(store)), {b"v": b"rubbish"})])])
    return nothing(store)


@pytest.mark.parametrize("make", [nothing, of_another_app, damaged_row, with_anothers_message, damaged_itself])
def test_nothing_is_pushed_for_a_key_that_names(make: Callable[[Backend], str]) -> None:
    store, pushed = MemoryBackend(), list[Envelope]()
    outcome = dead_letter_review.replay(store, APP, [make(store)], pushed.append)
    assert (pushed, outcome.done, len(outcome.refused)) == ([], 0, 1)


@pytest.mark.parametrize(
    "key", ["", "zz", "00", "ff" * 28, "00" * 28], ids=["empty", "no hex", "short", "high", "zero"]
)
def test_a_key_that_is_none_finds_nothing(key: str) -> None:
    assert dead_letter_review.replay(MemoryBackend(), APP, [key], lambda _: None).done == 0


@pytest.mark.parametrize("make", [damaged_row, with_anothers_message, damaged_itself])
def test_a_letter_that_holds_no_message_of_the_app_is_shown_without_samples(make: Callable[[Backend], str]) -> None:
    store = MemoryBackend()
    make(store)
    [shown] = dead_letter_review.list_dead_letters(store, APP, count=1)
    assert shown.samples == ()
    assert shown.cause


# --- the admin and the command ----------------------------------------------------------------------------------------


@pytest.fixture
def shop(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[App]:
    """An app with a store of its own."""
    monkeypatch.setattr(settings, "SPM_STORE_URL", f"lmdb://{tmp_path}/store")
    monkeypatch.setattr(settings, "SPM_TRANSPORT", "direct")
    own_acceptor.close_process_acceptor()
    yield App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    own_acceptor.close_process_acceptor()
    process_state.forget_quotas()  # of this app; the next test's app may have its number


def page(app: App) -> str:
    return reverse("admin:ingest_dead_letters", args=[app.pk])


def test_the_admin_shows_letters_and_accepts_them_anew(shop: App, admin_client: Client) -> None:
    store = open_backend(settings.SPM_STORE_URL)
    keys = bury(store, 2, app=shop.pk)
    shown = admin_client.get(page(shop)).content.decode()
    assert "its hour is sealed" in shown
    assert keys[0] in shown
    answer = admin_client.post(page(shop), {"key": keys[:1], "act": "replay"}, follow=True).content.decode()
    assert "1 accepted again." in answer
    assert [s.state for s in dead_letter_review.list_dead_letters(store, shop.pk, count=2)] == ["replayed", "waiting"]
    assert len(list(store.scan("pending", b"", b"\xff" * 30))) == 1
    assert AuditEntry.objects.get(action="replay dead letters").detail["done"] == 1


def test_a_letter_of_which_not_all_is_taken_goes_on_waiting_and_says_why(shop: App, admin_client: Client) -> None:
    store = open_backend(settings.SPM_STORE_URL)
    shop.series_max = 1
    shop.save()
    process_state.forget_quotas()
    keys = bury(store, 2, app=shop.pk)
    answer = admin_client.post(page(shop), {"key": keys, "act": "replay"}, follow=True).content.decode()
    assert "1 accepted again." in answer
    assert "2 of its 2 samples were rejected: a new series over the app&#x27;s quota" in answer
    assert sorted(s.state for s in dead_letter_review.list_dead_letters(store, shop.pk, count=2)) == [
        "replayed",
        "waiting",
    ]


def test_the_pages_of_letters_and_accounts_say_that_the_store_is_away(
    shop: App, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer")

    for name in ("newest", "find"):
        monkeypatch.setattr(dead_letters, name, away)
    monkeypatch.setattr("rollups.services.placement.summarise", away)
    assert "cannot be read now: no answer" in admin_client.get("/admin/rollups/spreading/").content.decode()
    assert "cannot be read now: no answer" in admin_client.get(page(shop)).content.decode()
    answer = admin_client.post(page(shop), {"key": ["00" * 28], "act": "replay"}, follow=True).content.decode()
    assert "Nothing was done: no answer" in answer
    for place in ("/admin/ingest/appdeadletters/", "/admin/ingest/appbalance/"):
        assert re.search(rf'<a href="{page(shop)}"[^>]*>\?</a>', admin_client.get(place).content.decode()), place


def test_the_list_of_apps_counts_what_waits(shop: App, admin_client: Client) -> None:
    bury(open_backend(settings.SPM_STORE_URL), 3, app=shop.pk)
    shown = admin_client.get("/admin/ingest/appdeadletters/").content.decode()
    assert re.search(rf'<a href="{page(shop)}"[^>]*>3</a>', shown)


def test_old_addresses_of_the_admin_lead_to_the_pages(shop: App, admin_client: Client) -> None:
    for old, new in (
        ("/admin/ingest/letterbox/", "/admin/ingest/appdeadletters/"),
        (f"/admin/ingest/letterbox/{shop.pk}/letters/", page(shop)),
        (f"/admin/ingest/letterbox/{shop.pk}/letters/?before=00ff", f"{page(shop)}?before=00ff"),
        ("/admin/ingest/accountbook/", "/admin/ingest/appbalance/"),
        (f"/admin/ingest/accountbook/{shop.pk}/account/", reverse("admin:ingest_balance", args=[shop.pk])),
    ):
        assert admin_client.get(old).headers["Location"] == new


def test_only_staff_with_the_permission_settle_letters(shop: App, client: Client) -> None:
    keys = bury(open_backend(settings.SPM_STORE_URL), app=shop.pk)
    client.force_login(User.objects.create_user("eve", is_staff=True))
    assert client.get(page(shop)).status_code == 403
    assert client.post(page(shop), {"key": keys, "act": "dismiss"}).status_code == 403
    assert (
        dead_letter_review.list_dead_letters(open_backend(settings.SPM_STORE_URL), shop.pk, count=1)[0].state
        == "waiting"
    )


def test_the_command_lists_and_settles_letters(shop: App, capsys: pytest.CaptureFixture[str]) -> None:
    keys = bury(open_backend(settings.SPM_STORE_URL), 2, app=shop.pk)
    call_command("dead", shop.pk)
    listed = capsys.readouterr().out
    assert all(key in listed for key in keys)
    call_command("dead", shop.pk, keys[0], "--replay")
    call_command("dead", shop.pk, keys[1], "--dismiss")
    assert [
        s.state for s in dead_letter_review.list_dead_letters(open_backend(settings.SPM_STORE_URL), shop.pk, count=2)
    ] == [
        "replayed",
        "dismissed",
    ]
    with pytest.raises(CommandError, match="1 not done"):
        call_command("dead", shop.pk, keys[0], "--replay")
    with pytest.raises(CommandError, match="no app"):
        call_command("dead", 4_000_000)
