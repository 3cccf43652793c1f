"""A flood of logins becomes a few entries of the audit log."""

from spm.accounts.logins import limits
from spm.accounts.logins.journal import Journal

NOW = 1_700_000_000_000 // 60_000 * 60_000


def test_equal_events_are_written_at_round_numbers_only() -> None:
    journal = Journal()
    counts = [journal.note("a", NOW + each) for each in range(2_400)]
    assert [count.events for count in counts if count] == [1, 10, 100, 1_000]


def test_the_first_events_are_written_one_by_one_where_each_matters() -> None:
    journal = Journal()
    counts = [journal.note("a", NOW, singly=3) for _ in range(10)]
    assert [count.events for count in counts if count] == [1, 2, 3, 10]


def test_counting_begins_anew_when_its_time_is_over_or_the_clock_goes_back() -> None:
    journal = Journal()
    for now_ms in (NOW, NOW + limits.LOGIN_AUDIT_MS, NOW - 1):
        count = journal.note("a", now_ms)
        assert (count and count.events, count and count.since_ms) == (1, now_ms)
        assert journal.note("a", now_ms) is None


def test_more_kinds_of_events_than_fit_are_counted_together() -> None:
    journal = Journal()
    counts = [journal.note(str(each), NOW) for each in range(limits.LOGIN_AUDIT_PER_MINUTE + 1_000)]
    written = [count for count in counts if count]
    assert len(written) == limits.LOGIN_AUDIT_PER_MINUTE + 4
    assert [count.events for count in written if count.is_together] == [1, 10, 100, 1_000]
    assert journal.note("another minute", NOW + 60_000)
