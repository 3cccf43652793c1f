"""The table of HTTP statuses: each error has the status of its nearest known class."""

import logging

import pytest
from django.db import OperationalError
from django.test import Client

from spm import errors
from spm.clock import FakeClock
from spm.errors import BadMessage, BadQuery, LimitExceeded, PlacementUnfit, QueryTimeout, Refused, StoreFull
from spm.web.error_status import BODY_STATUSES, ForeignHosts, status_of, text_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadQuery("x"), 400),
        (BadMessage("x"), 400),
        (Refused("x"), 409),
        (LimitExceeded("x"), 422),
        (errors.QueryTooLarge("x"), 422),
        (errors.QueryFailed("x"), 422),
        (errors.QueryRefused("x"), 429),
        (errors.QueryCancelled("x"), 499),
        (QueryTimeout("x"), 503),
        (StoreFull("x"), 503),
        (PlacementUnfit("x"), 503),
        (ValueError("x"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_the_status_of_its_class(error: Exception, status: int) -> None:
    assert status_of(error) == status


@pytest.mark.parametrize(
    ("words", "message"),
    [("database or disk is full", "disk is full"), ("connection to server at 10.0.0.9 failed", "does not answer now")],
)
def test_what_a_client_reads_of_a_database_says_whether_it_is_full_and_not_where_it_is(
    words: str, message: str
) -> None:
    text = text_of(OperationalError(words))
    assert message in text
    assert "10.0.0.9" not in text


def test_an_interface_may_have_a_status_of_its_own_for_a_class_and_its_subclasses() -> None:
    class TooLong(LimitExceeded):
        """A subclass without a status."""

    assert [status_of(kind("x"), BODY_STATUSES) for kind in (LimitExceeded, TooLong)] == [413, 413]
    assert status_of(TooLong("x"), {TooLong: 414, **BODY_STATUSES}) == 414


def test_every_error_of_the_catalogue_has_a_status_of_its_own_or_may_be_tried_again() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SpmError)]
    assert {status_of(kind.__new__(kind)) for kind in kinds} == {400, 409, 422, 429, 499, 503}


def test_requests_to_foreign_hosts_write_one_line_a_minute_without_a_traceback() -> None:
    clock = FakeClock()
    hosts, shown = ForeignHosts(clock), []
    for second in range(61):
        record = logging.LogRecord(
            "h", logging.ERROR, "", 0, "Invalid host %r", ("e" * 999,), (OSError, OSError(), None)
        )
        shown += [record] * hosts.filter(record)
        clock.advance(1_000 * (second < 60))
    assert [(record.levelno, record.exc_info, len(record.getMessage()) < 300) for record in shown] == [
        (logging.WARNING, None, True)
    ] * 2
    assert "59 further ones" in shown[1].getMessage()


def test_django_s_own_line_about_a_foreign_host_passes_that_filter(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        assert Client().get("/login", headers={"host": "evil.example"}).status_code == 400
    lines = [record for record in caplog.records if record.name == "django.security.DisallowedHost"]
    assert len(lines) <= 1
    assert all(record.exc_info is None and record.levelno == logging.WARNING for record in lines)
