"""The balance of samples on pages, in the interface and in downloads, in every state of the balance."""

import csv
import io
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.presenters import delivery
from ingest.accounting import balance
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.ledger import balance_hours
from tests.frontend import balance_examples
from tests.frontend.balance_examples import Book
from tests.support.faults import flip
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
DAY = 22 * 3 * 2


@pytest.fixture
def now_ms() -> int:
    return SystemClock().now_ms()


@pytest.fixture
def book(alpha: Tenant, settings: Any, now_ms: int) -> Book:
    """A day with something of everything."""
    return balance_examples.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms)


@pytest.fixture
def data(alpha: Tenant) -> str:
    return f"/apps/{alpha.app.pk}/data"


@pytest.fixture
def place(data: str) -> str:
    return f"{data}/ingestion"


@pytest.fixture
def api(alpha: Tenant) -> str:
    return f"/api/v1/apps/{alpha.app.pk}/balance"


def text_of(client: Client, address: str) -> str:
    """The page's text; it must be there."""
    response = client.get(address)
    assert response.status_code == 200, address
    return response.content.decode()


@pytest.mark.usefixtures("book")
def test_the_balance_says_where_all_samples_are(desk: Client, api: str) -> None:
    answer = desk.get(api).json()
    assert answer["adds_up"]
    counts = {name: answer["samples"][name] for name in ("rejected", "dead", "queued", "in_flight", "unconfirmed")}
    assert counts == {"rejected": 9, "dead": 24, "queued": 85, "in_flight": 5, "unconfirmed": 0}
    outcomes = ("stored", "late", "rejected", "dead")
    assert answer["samples"]["accepted"] == sum(answer["samples"][n] for n in (*outcomes, "queued", "in_flight"))
    assert answer["messages"]["accepted"] == DAY + 2 + 3


@pytest.mark.usefixtures("book")
def test_the_page_explains_each_line_and_links_to_details(desk: Client, place: str, data: str) -> None:
    page = text_of(desk, place)
    for text in ("Dead letters", "Rejected lines", "Queued", "In flight", "adds up", 'role="status"'):
        assert text in page
    assert f'<a href="{data}/dead-letters">24</a>' in page
    assert f'<a href="{data}/rejected">9</a>' in page


@pytest.mark.usefixtures("book")
def test_the_hours_add_up_to_all_outcomes(desk: Client, api: str) -> None:
    now, answer = desk.get(api).json()["samples"], desk.get(f"{api}/hours").json()
    for name in ("stored", "rejected", "dead", "late"):
        assert sum(hour[name] for hour in answer["hours"]) == answer["total"][name] == now[name], name
        assert sum(source[name] for source in answer["sources"]) == now[name], name
    assert len(answer["hours"]) == 24


@pytest.mark.usefixtures("book")
def test_a_gap_in_a_sources_numbers_is_named(desk: Client, api: str, place: str) -> None:
    [gap] = desk.get(f"{api}/hours").json()["gaps"]
    assert (gap["source"], gap["messages"], gap["last"] - gap["first"] + 1) == ("web-1", 37, 37)
    assert gap["after"] < gap["before"]
    assert "37 messages in 1 gap" in text_of(desk, f"{place}/hours")


@pytest.mark.usefixtures("book")
def test_the_download_has_a_row_per_hour_and_source_and_no_formula(desk: Client, place: str, api: str) -> None:
    answer = desk.get(f"{place}/download?hours=24")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[attr-defined]
    assert answer["Content-Disposition"].startswith("attachment")
    assert sum(int(row["stored"]) for row in rows) == desk.get(api).json()["samples"]["stored"]
    assert {row["source"] for row in rows} == {"web-1", "web-2", "db-1 =cmd|'/C calc'!A0"}


@pytest.mark.parametrize("source", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "|x", "\r=1", "\n=1", "＝1"])
def test_no_cell_of_the_csv_is_taken_for_a_formula(source: str) -> None:
    line = b"".join(delivery.csv_lines(["source"], iter([{"source": source}]))).decode()
    [[cell]] = list(csv.reader(io.StringIO(line.partition("\n")[2], newline="")))
    assert cell == f"'{source}"


def test_ordinary_cells_of_the_csv_stay_as_they_are() -> None:
    rows = iter([{"source": "web-1", "n": -5}, {"source": 'a,"b"\nc', "n": 0}])
    text = b"".join(delivery.csv_lines(["source", "n"], rows)).decode()
    assert list(csv.reader(io.StringIO(text, newline="")))[1:] == [["web-1", "-5"], ['a,"b"\nc', "0"]]


@pytest.mark.usefixtures("book")
def test_a_program_gets_the_rows_as_json_lines(client: Client, alpha: Tenant, api: str) -> None:
    answer = client.get(f"{api}/rows?form=jsonl&content=gaps", HTTP_AUTHORIZATION=f"Bearer {alpha.token}")
    [row] = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]  # type: ignore[attr-defined]
    assert (row["source"], row["messages"]) == ("web-1", 37)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("hours=0", 400),
        ("hours=169", 400),
        ("hours=x", 400),
        ("form=xls", 400),
        ("content=all", 400),
        ("hours=168", 200),
    ],
)
def test_an_invalid_query_is_refused(desk: Client, api: str, query: str, status: int) -> None:
    assert desk.get(f"{api}/rows?{query}").status_code == status


@pytest.mark.parametrize("query", ["form=xls", "content=all"])
def test_an_unknown_download_is_not_found(desk: Client, place: str, query: str) -> None:
    assert desk.get(f"{place}/download?{query}").status_code == 404


def test_an_app_without_messages_says_what_the_page_will_show(desk: Client, place: str, data: str, api: str) -> None:
    assert "Nothing has been accepted yet" in text_of(desk, place)
    assert "No message got an outcome in this time" in text_of(desk, f"{place}/hours")
    assert "None. Everything" in text_of(desk, f"{data}/rejected")
    assert "None. All data" in text_of(desk, f"{data}/dead-letters")
    assert desk.get(api).json()["samples"]["accepted"] == 0


@pytest.mark.usefixtures("book")
def test_rejected_lines_and_dead_letters_are_shown_with_their_cause(desk: Client, data: str) -> None:
    rejected = text_of(desk, f"{data}/rejected")
    assert "a field without a value" in rejected
    assert "&lt;b&gt;web-2" in rejected
    assert "already stands for another series" in text_of(desk, f"{data}/dead-letters")


def test_a_balance_that_does_not_add_up_says_so(
    desk: Client, alpha: Tenant, settings: Any, now_ms: int, place: str, api: str
) -> None:
    book = Book.open(settings.SPM_STORE_URL, alpha.app.pk, now_ms)
    book.store_all(book.accept("web-1", samples=3))
    book.acceptor._counts[book.app].samples -= 2  # as if it had announced too little
    book.announce()
    answer = desk.get(api).json()
    assert (answer["adds_up"], answer["findings"]) == (False, [{"process": 1, "messages": 0, "samples": -2}])
    assert "Server process 1: −2 samples" in text_of(desk, place)


def test_a_clock_that_was_ahead_is_named(alpha: Tenant, desk: Client, settings: Any, now_ms: int, place: str) -> None:
    assert "clock was ahead" not in text_of(desk, place)
    book = Book.open(settings.SPM_STORE_URL, alpha.app.pk, now_ms + 7_200_000)
    book.store_all(book.accept("web-1"))
    book.announce()
    assert "clock was ahead" in text_of(desk, place)


def test_a_damaged_row_is_reported_and_not_counted(
    desk: Client, alpha: Tenant, book: Book, place: str, settings: Any
) -> None:
    store = open_backend(settings.SPM_STORE_URL)
    book.store_all(book.accept("web-1", samples=3))
    start, stop = keys.app_range(0, 0)[0][:0], b"\xff" * 8
    key, cells = max(store.scan("pending", start, stop), key=lambda row: -keys.PendingKey.parse(row[0]).ingest_ms)
    store.put([("pending", [(key, dict.fromkeys(cells, b"\x00" * 9))])])
    assert "cannot be read" in text_of(desk, place)


@pytest.mark.usefixtures("book")
def test_a_process_whose_counts_cannot_be_read_is_named(
    desk: Client, alpha: Tenant, place: str, api: str, settings: Any
) -> None:
    store = open_backend(settings.SPM_STORE_URL)
    flip(store, "marks", keys.watermark(alpha.app.pk, 1), b"a")
    answer = desk.get(api).json()
    assert (answer["adds_up"], answer["unread_processes"]) == (False, [1])
    assert "The counts of server process 1 cannot be read" in text_of(desk, place)


@pytest.mark.parametrize("page", ["ingestion", "ingestion/hours", "dead-letters"])
def test_a_store_that_is_away_costs_the_numbers_not_the_page(
    desk: Client, data: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer")

    for name in (
        "frontend.presenters.delivery.read_balance",
        "frontend.presenters.delivery.read_hours",
        "ingest.accounting.dead_letter_review.list_dead_letters",
    ):
        monkeypatch.setattr(name, away)
    assert "cannot be read now: no answer" in text_of(desk, f"{data}/{page}")
    assert desk.get(f"{data}/ingestion/download").status_code == 503


def test_samples_that_an_ended_process_was_processing_are_unconfirmed(
    desk: Client, alpha: Tenant, settings: Any, now_ms: int, api: str
) -> None:
    book = Book.open(settings.SPM_STORE_URL, alpha.app.pk, now_ms - HOUR_MS)
    book.store_all(book.accept("web-1", samples=4))
    book.queue(book.accept("web-1", samples=5))
    book.accept("web-1", samples=6)
    book.announce()
    samples = desk.get(api).json()["samples"]
    assert {name: samples[name] for name in ("accepted", "stored", "queued", "in_flight", "unconfirmed")} == {
        "accepted": 15,
        "stored": 4,
        "queued": 5,
        "in_flight": 0,
        "unconfirmed": 6,
    }


def test_hours_that_are_final_are_read_once(
    alpha: Tenant, book: Book, settings: Any, now_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_backend(settings.SPM_STORE_URL)
    at = now_ms - now_ms % HOUR_MS + HOUR_MS // 2  # a minute later is the same hour
    first = balance.read_span(store, alpha.app.pk, at, 24)
    ranges: list[tuple[int, int]] = []
    read = balance_hours.read_hours

    def record(reader: Any, app: int, begin: int, end: int, cells: Any) -> Any:
        ranges.append((begin, end))
        return read(reader, app, begin, end, cells)

    monkeypatch.setattr(balance_hours, "read_hours", record)
    again = balance.read_span(store, alpha.app.pk, at + 60_000, 24)
    assert again.total() == first.total()
    assert sum(end - begin + 1 for begin, end in ranges) <= 3


@pytest.mark.usefixtures("book")
def test_staff_see_every_balance_and_each_process(client: Client, alpha: Tenant) -> None:
    client.force_login(User.objects.create_superuser("root@example.org"))
    page = text_of(client, "/admin/ingest/appbalance/")
    assert f"/admin/ingest/appbalance/{alpha.app.pk}/balance/" in page
    assert any(int(lag) >= 90 for lag in re.findall(r">\s*(\d+) s\s*<", page))
    assert "In flight" in text_of(client, f"/admin/ingest/appbalance/{alpha.app.pk}/balance/")


def test_the_schema_describes_the_balance(desk: Client) -> None:
    paths = desk.get("/api/v1/schema?format=json").json()["paths"]
    place = "/api/v1/apps/{app_id}/balance"
    assert {place, f"{place}/hours", f"{place}/rows"} <= set(paths)
    assert {"text/csv", "application/x-ndjson"} <= set(paths[f"{place}/rows"]["get"]["responses"]["200"]["content"])


@pytest.mark.usefixtures("book")
@pytest.mark.parametrize("rest", ["", "/hours", "/rows?form=jsonl"])
def test_the_old_addresses_of_the_balance_still_answer(desk: Client, api: str, rest: str) -> None:
    assert desk.get(api.replace("/balance", "/account") + rest).status_code == 200
