"""The picture of a backtest: its coordinates are numbers whatever the values and thresholds are."""

import numpy as np
import pytest

from alerts.backtesting.backtests import BacktestReport, version_of
from alerts.backtesting.ranges import ValueRanges
from alerts.judging.answers import Answer
from alerts.judging.versions import Steps
from alerts.models import Rule
from alerts.pages.editor.picture import HEIGHT, Picture, draw

MOST = float(np.finfo(np.float64).max)
STEPS = Steps(0, 1_000_000, 10_000)


def picture_of(values: list[float], threshold: float) -> Picture:
    ranges = ValueRanges(STEPS, 20)
    row = np.resize(np.array(values), (1, len(STEPS)))
    ranges.add(Answer([{"host": "a"}], row, ~np.isnan(row)), STEPS)
    report = BacktestReport(STEPS.first_ms, STEPS.last_ms, (), (), (), ranges)
    return draw(report, version_of(Rule(app_id=1, expr="cpu", comparator=">", threshold=threshold)))


@pytest.mark.parametrize("values", [[MOST, -MOST], [MOST], [1e-320, 0.0], [np.inf, 1.0], [np.nan], [0.0], [-1.0]])
@pytest.mark.parametrize("threshold", [0.0, MOST, -MOST])
def test_a_picture_has_finite_coordinates_only(values: list[float], threshold: float) -> None:
    picture = picture_of(values, threshold)
    assert "n" not in "".join(line.path for line in picture.lines)
    assert np.isfinite([picture.low, picture.high]).all()
    assert picture.threshold is not None
    assert 0 <= picture.threshold <= HEIGHT
