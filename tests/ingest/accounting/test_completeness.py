"""What should have come and what did, by periods and numbers; and the series about its sources that an app gets."""

from typing import Any

import numpy as np
import pytest

from ingest.accept.identity import Sender
from ingest.accounting import completeness
from ingest.accounting.balance import HourSpan
from ingest.accounting.completeness import KnownSource
from ingest.system_series import source_series
from spm import limits
from spm.accounts import sources
from spm.accounts.models import App, Organisation
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger.balance_hours import HourBalance, NumberGap, NumberRun
from spm.wire import Parsed, parse_canonical
from tests.support import notes, process_state

HOUR = 472_222
START = HOUR * HOUR_MS
END = START + HOUR_MS


def known(name: str = "a", period_s: int = 10, first_ms: int = 0, last_ms: int = END) -> KnownSource:
    return KnownSource(name, first_ms, last_ms, period_s * 1000)


def span(messages: dict[str, int], runs: tuple[NumberRun, ...] = (), gaps: tuple[NumberGap, ...] = ()) -> HourSpan:
    counts = np.array(list(messages.values()), np.int64)
    zero = np.zeros(len(counts), np.int64)
    return HourSpan(START, END, (HourBalance(HOUR, tuple(messages), counts, counts, zero, zero, zero, runs),), gaps)


def one(span: HourSpan, source: KnownSource | None = None, until_ms: int = END) -> completeness.Completeness:
    [result] = completeness.compare([source or known()], span, since_ms=START, until_ms=until_ms, now_ms=until_ms)
    return result


def test_a_source_that_sent_all_it_should_is_complete() -> None:
    result = one(span({"a": 360}))
    assert (result.expected, result.got, result.missing, result.silent, result.share) == (360, 360, 0, 0, 1.0)


def test_what_was_sent_twice_came_once() -> None:
    result = one(span({"a": 700}, (NumberRun("a", 1, 11, 360, START, END),)))
    assert (result.got, result.silent, result.share) == (350, 10, 350 / 360)


def test_lost_numbers_and_silence_are_told_apart() -> None:
    runs = (NumberRun("a", 1, 1, 100, START, END), NumberRun("a", 1, 111, 200, START, END))
    result = one(span({"a": 190}, runs, (NumberGap("a", "1", 101, 110, START, END),)))
    assert (result.got, result.missing, result.silent) == (190, 10, 160)


def test_a_source_with_two_messages_per_look_is_not_over_complete() -> None:
    result = one(span({"a": 720}))
    assert (result.expected, result.share) == (720, 1.0)


def test_nothing_is_expected_before_a_source_was_known() -> None:
    result = one(span({"a": 180}), known(first_ms=START + HOUR_MS // 2))
    assert (result.expected, result.share) == (180, 1.0)


def test_a_source_that_says_nothing_lacks_everything() -> None:
    result = one(span({}), known(last_ms=START - HOUR_MS))
    assert (result.expected, result.got, result.silent, result.share, result.state) == (360, 0, 360, 0.0, "gone")


@pytest.mark.parametrize(
    ("since_ms", "before_s", "expected"),
    [
        (START - HOUR_MS, 60, 360),
        (START + HOUR_MS // 2, 60, 30 + 180),
        (START + HOUR_MS // 2, 1, 1_800 + 180),
        (START + HOUR_MS // 2, 0, 180),  # until then it had announced nothing
        (END + HOUR_MS, 60, 60),
    ],
)
def test_each_stretch_counts_by_the_period_of_its_time(since_ms: int, before_s: int, expected: int) -> None:
    changed = KnownSource("a", 0, END, 10_000, since_ms, before_s * 1000)
    assert completeness.expected_messages(changed, START, END) == expected


@pytest.mark.parametrize("period_s", [1, 10, 60, 3_600])
def test_an_hour_expects_what_fits_into_it(period_s: int) -> None:
    assert completeness.expected_messages(known(period_s=period_s), START, END) == 3_600 // period_s


def test_a_period_longer_than_the_stretch_expects_nothing() -> None:
    result = one(span({}), known(period_s=7_200))
    assert (result.expected, result.share) == (0, None)


class RecordingAcceptor:
    """Records what it accepts."""

    def __init__(self) -> None:
        self.accepted: list[tuple[Sender, Parsed]] = []

    def accept(self, parsed: Parsed, *, sender: Sender, message_id: bytes) -> None:
        self.accepted.append((sender, parsed))


@pytest.fixture
def app(db: None) -> App:
    process_state.forget_sent_hours()
    return App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")


def series(parsed: Parsed) -> dict[tuple[str, str], float]:
    forms = [parse_canonical(parsed.series.canonical(index)) for index in parsed.series_index]
    return {(metric, labels["source"]): value for (metric, labels), value in zip(forms, parsed.values, strict=True)}


def test_an_app_is_told_who_of_its_sources_is_up(app: App) -> None:
    now, acceptor = END + 1_000_000, RecordingAcceptor()
    notes.see_source(app.pk, "up", now - 5_000, period_ms=10_000)
    notes.see_source(app.pk, "down", now - 2_000_000, period_ms=10_000)
    notes.see_source(app.pk, "unknown", now)
    assert source_series.send_source_series(MemoryBackend(), acceptor, now) == 1  # type: ignore[arg-type]
    (sender, state), (_, hour) = acceptor.accepted
    assert (sender.app_id, sender.source) == (app.pk, sources.SYSTEM_SOURCE)
    values = series(state)
    assert {name: values["spm_source_up", name] for name in ("up", "down")} == {"up": 1.0, "down": 0.0}
    assert values["spm_source_age_seconds", "up"] == 5.0
    assert ("spm_source_up", "unknown") not in values
    assert set(hour.ts.tolist()) == {END}
    assert series(hour)["spm_source_got_messages", "up"] == 0


def test_an_hour_is_told_once_and_who_is_up_every_time(app: App) -> None:
    now, acceptor = END + limits.BALANCE_SLACK_MS, RecordingAcceptor()
    notes.see_source(app.pk, "a", now, period_ms=10_000)
    for minute in range(3):
        source_series.send_source_series(MemoryBackend(), acceptor, now + minute * 60_000)  # type: ignore[arg-type]
    assert len(acceptor.accepted) == 4


def test_apps_without_announced_periods_are_told_nothing(app: App) -> None:
    acceptor: Any = RecordingAcceptor()
    notes.see_source(app.pk, "plain", END)
    assert source_series.send_source_series(MemoryBackend(), acceptor, END) == 0
    assert not acceptor.accepted
