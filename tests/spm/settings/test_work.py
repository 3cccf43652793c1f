"""The hours of the day in which closed hours are merged, as the setting names them."""

from collections.abc import Iterable

import pytest
from django.core.exceptions import ImproperlyConfigured

from spm.settings.environment import hours_of_day


@pytest.mark.parametrize(
    ("text", "hours"),
    [("", range(24)), ("1-3", (1, 2)), ("22-2", (0, 1, 22, 23)), ("0-24", range(24)), ("5-5", range(24))],
)
def test_hours_for_merging_may_cross_midnight(text: str, hours: Iterable[int]) -> None:
    assert hours_of_day("SPM_MERGE_HOURS", text) == set(hours)


@pytest.mark.parametrize("text", ["22", "a-b", "24-2", "1-25", "-1-3", "1-2-3"])
def test_hours_for_merging_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"SPM_MERGE_HOURS is .* as in 22-6"):
        hours_of_day("SPM_MERGE_HOURS", text)
