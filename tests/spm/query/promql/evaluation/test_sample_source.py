"""A query forgets aggregates that it did not use."""

from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.evaluation import whole_hours
from spm.query.promql.evaluation.sample_source import SampleSource
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import Matcher
from spm.query.request.budget import Budget, QueryLimits

M = (Matcher("__name__", "=", "m"),)
COLUMNS = ("sum",)


def test_provenance_omits_aggregates_that_were_of_no_use() -> None:
    storage = FakeStorage().add("m", {}, [HOUR_MS // 2, HOUR_MS + 1], [1.0, 2.0])
    source = SampleSource(storage, Budget(QueryLimits(), FakeClock(0)))
    cells = whole_hours.hour_cells(Steps(2 * HOUR_MS, 0, 1), 2 * HOUR_MS)
    assert cells is not None
    source.forget_cells(M, cells, COLUMNS)  # never read: nothing happens
    source.select_cells(M, cells, COLUMNS, steps=1)
    bytes_before = source.budget.usage.bytes
    assert source.provenance().ranges
    source.forget_cells(M, cells, COLUMNS)
    assert not source.provenance().ranges
    assert source.rests_on_samples(source.provenance())
    assert source.budget.usage.bytes < bytes_before
