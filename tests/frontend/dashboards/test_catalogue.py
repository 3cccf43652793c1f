"""What the queries of variables may cost together."""

from dataclasses import dataclass, field

import pytest

from frontend.dashboards.catalogue import AppCatalogue
from spm.clock import FakeClock
from spm.errors import QueryTimeout
from spm.query.request.budget import Budget, QueryLimits


@dataclass
class SlowSession:
    """A session whose storage takes 20 seconds for each answer."""

    clock: FakeClock = field(default_factory=FakeClock)

    @property
    def storage(self) -> "SlowSession":
        return self

    def budget(self) -> Budget:
        return Budget(QueryLimits(), self.clock)

    def label_names(self, matcher_sets: object, start_ms: int, end_ms: int) -> list[str]:
        self.clock.sleep(20)
        return ["host"]


def test_all_queries_of_a_page_together_have_the_time_of_one() -> None:
    catalogue = AppCatalogue(SlowSession(), 0)  # type: ignore[arg-type]  # as much of a session as this query takes
    assert catalogue.find("label_names()") == catalogue.find("label_names()") == ["host"]
    with pytest.raises(QueryTimeout):
        catalogue.find("label_names()")
