"""The table of HTTP statuses: each error has the status of its nearest known class."""

import pytest

from spm import errors
from spm.errors import BadMessage, BadQuery, LimitExceeded, PlacementUnfit, QueryTimeout, Refused, StoreFull
from spm.web.error_status import BODY_STATUSES, status_of


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


def test_an_interface_may_have_a_status_of_its_own_for_a_class_and_its_subclasses() -> None:
    class TooLong(LimitExceeded):
        """A subclass without a status."""

    assert [status_of(kind("x"), BODY_STATUSES) for kind in (LimitExceeded, TooLong)] == [413, 413]
    assert status_of(TooLong("x"), {TooLong: 414, **BODY_STATUSES}) == 414


def test_every_error_of_the_catalogue_has_a_status_of_its_own_or_may_be_tried_again() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SpmError)]
    assert {status_of(kind.__new__(kind)) for kind in kinds} == {400, 409, 422, 429, 499, 503}
