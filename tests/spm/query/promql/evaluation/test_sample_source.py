"""Claims about what one query keeps of what it has read."""

from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.evaluation import whole_hours
from spm.query.promql.evaluation.sample_source import Reader
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import Matcher
from spm.query.request.budget import Budget, QueryLimits

M = (Matcher("__name__", "=", "m"),)
COLUMNS = ("sum",)


def test_an_answer_does_not_rest_on_aggregates_that_were_of_no_use() -> None:
    storage = FakeStorage().add("m", {}, [HOUR_MS // 2, HOUR_MS + 1], [1.0, 2.0])
    reader = Reader(storage, Budget(QueryLimits(), FakeClock(0)))
    span = whole_hours.cells(Steps(2 * HOUR_MS, 0, 1), 2 * HOUR_MS)
    assert span is not None
    reader.forget_cells(M, span, COLUMNS)  # never read: nothing happens
    reader.select_cells(M, span, COLUMNS, steps=1)
    read = reader.budget.usage.bytes
    assert reader.basis().runs
    reader.forget_cells(M, span, COLUMNS)
    assert not reader.basis().runs
    assert reader.from_samples
    assert reader.budget.usage.bytes < read
