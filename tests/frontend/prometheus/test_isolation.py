"""A token reads the data of its app and never a byte of another, whatever the query: random reads of many tenants.

Each app's series carry a word that is its own in a label's value, and names and values that are prefixes of, or look
like, those of the others. Any answer that holds a foreign word is a leak. `bin/test --proof reads` does 100,000.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from django.test import Client

from ingest.accept.stamper import Stamper
from ingest.exemplars.storage import ExemplarNote, ExemplarWriter
from ingest.writer import Writer
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.clock import FakeClock, SystemClock
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Exemplar, Parsed, SeriesTable, canonical

TENANTS = 6
AT_MS = SystemClock().now_ms() // 1_000 * 1_000 - 10_000
NAMES = ("up", "up1", "up10", "u", "up\x01", "ÿup", "up:", "org1", "org10")
VALUES = ("1", "10", "100", "a", "a\xff", "é", "org1", "org10", "%00", "\U0010ffff")
SELECTORS = (
    '{{__name__!=""}}',
    '{{__name__=~".*"}}',
    "{name}",
    '{{__name__="{name}"}}',
    '{{__name__=~"{name}.*"}}',
    '{{v="{value}"}}',
    '{{v=~"{value}.*"}}',
    '{{v!="{value}"}}',
    '{{secret=~".+"}}',
    '{{secret="{word}"}}',
    '{{secret=~"{word}|x"}}',
    '{{app="{foreign}"}}',
    '{{__name__=~"(?s:.)*",secret!~"{word}"}}',
    "{name}[1h]",
    "sum by (secret) ({name})",
    "absent({name})",
)
PROMETHEUS = (
    "query?query={query}&time={at}&app={foreign}",
    "query?query={query}&explain=1&stats=all",
    "metadata",
    "rules",
    "query_range?query={query}&start={at}&end={at}&step=10&org={foreign}",
    "series?match[]={query}",
    "labels?match[]={query}&app={foreign}",
    "label/secret/values?match[]={query}",
    "label/secret/values",
    "status/tsdb?limit=100",
    "query_exemplars?query={query}&app={foreign}",
)
CALLS = (
    *(f"/prometheus/api/v1/{call}" for call in PROMETHEUS),
    "/prometheus/federate?match[]={query}",
    "/api/v1/export?match[]={query}&format=csv",
    "/api/v1/export?match[]={query}&app={foreign}",
)


@dataclass(frozen=True, slots=True)
class TenantApp:
    """An app of an organisation of its own, the word that only its data contains, and its token."""

    app: int
    word: str
    token: str


@pytest.fixture
def tenants(db: None, settings: Any, tmp_path: Path) -> list[TenantApp]:
    """Return apps whose series are equal but for a word of their own."""
    backend, clock = open_backend(settings.SPM_STORE_URL), FakeClock(AT_MS)
    writer, acceptor = Writer(backend, PlacementTable()), Stamper(1, clock)
    tenants = []
    for number in range(TENANTS):
        app = App.objects.create(organisation=Organisation.objects.create(name=f"org{number}"), name="a")
        word = f"word{number}of{TENANTS}"
        forms = [canonical(name, {"v": value, "secret": word}) for name in NAMES for value in VALUES]
        table = SeriesTable.from_canonical(forms)
        columns = np.arange(len(forms), dtype=np.int32), np.full(len(forms), AT_MS), np.arange(float(len(forms)))
        parsed = Parsed(table, *columns)
        writer.write([acceptor.stamp_message(app=app.pk, source=word, parsed=parsed, message_id=bytes(16))])
        shown = [Exemplar(form, AT_MS, 1.0, (("trace_id", word),)) for form in forms]
        ExemplarWriter().write({app.pk: {one: ExemplarNote(one, AT_MS, word) for one in shown}})
        tenants.append(TenantApp(app.pk, word, tokens.issue(app, name="t", scopes=["read"])[1]))
    return tenants


def reads(client: Client, tenants: list[TenantApp], count: int, seed: int) -> tuple[int, int]:
    """Make random reads; return (reads that gave the caller's own data, reads that gave any foreign byte)."""
    draw, own, leaks = np.random.default_rng(seed), 0, 0
    for number in range(count):
        me, other = (tenants[n] for n in draw.choice(TENANTS, 2, replace=False))
        choice = {"name": NAMES[draw.integers(len(NAMES))], "value": VALUES[draw.integers(len(VALUES))]}
        words = {**choice, "word": other.word, "foreign": other.app}
        selector = SELECTORS[draw.integers(len(SELECTORS))].format(**words)
        url = CALLS[draw.integers(len(CALLS))].format(query=quote(selector), at=AT_MS // 1_000, foreign=other.app)
        headers = {"Authorization": f"Bearer {me.token}", "X-Scope-OrgID": str(other.app)}
        response: Any = client.get(url, headers=headers)
        assert response.status_code < 500, (url, response.content)
        body = b"".join(response) if response.streaming else response.content
        escaped = selector.encode().replace(b'"', b'\\"')  # an error may repeat the caller's own query
        shown = body.replace(escaped, b"").replace(selector.encode(), b"") if response.status_code >= 400 else body
        own += me.word.encode() in body
        leaks += any(
            t.word.encode() in shown for t in tenants if t is not me and not (t is other and t.word in selector)
        )
        if (number + 1) % 10_000 == 0:
            print(f"{number + 1} reads, {leaks} leaks", flush=True)
    return own, leaks


def test_random_reads_of_tenants_show_no_foreign_byte(client: Client, tenants: list[TenantApp]) -> None:
    own, leaks = reads(client, tenants, 200, seed=1)
    assert leaks == 0
    assert own > 40  # the reads do find what is the caller's


def test_exemplars_of_every_series_are_the_callers_own(client: Client, tenants: list[TenantApp]) -> None:
    me, other = tenants[:2]
    url = "/prometheus/api/v1/query_exemplars?query=" + quote('{v=~".+"}') + f"&app={other.app}"
    response = client.get(url, headers={"Authorization": f"Bearer {me.token}", "X-Scope-OrgID": str(other.app)})
    assert response.content.count(b'"trace_id"') == len(NAMES) * len(VALUES)
    assert [t.word for t in tenants if t.word.encode() in response.content] == [me.word]


def test_a_selector_with_a_word_of_another_tenant_matches_nothing(client: Client, tenants: list[TenantApp]) -> None:
    me, other = tenants[:2]
    for call in ("series?match[]=", "query?query=", "label/secret/values?match[]="):
        url = f"/prometheus/api/v1/{call}" + quote(f'{{secret="{other.word}"}}')
        response: Any = client.get(url, headers={"Authorization": f"Bearer {me.token}"})
        assert response.status_code == 200
        assert other.word.encode() not in response.content


@pytest.mark.proof
@pytest.mark.timeout(7_200)
def test_proof_reads_of_tenants_show_no_foreign_byte(client: Client, tenants: list[TenantApp]) -> None:
    _, leaks = reads(client, tenants, int(os.environ.get("SPM_ISOLATION_READS", "100000")), seed=2)
    assert leaks == 0
