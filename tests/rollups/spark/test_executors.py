"""Which executor a run gets."""

import logging
from pathlib import Path

import pytest

from rollups.crash_points import ignore_point
from rollups.spark.executors import list_superseded, open_executor
from spm.errors import Refused
from spm.store.backends import open_backend


def test_a_site_without_spark_runs_in_its_process_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"lmdb://{tmp_path}"
    with (
        caplog.at_level(logging.INFO),
        open_executor(
            "spark", open_backend("memory://"), url=url, master="none", folder=tmp_path, at=ignore_point
        ) as executor,
    ):
        assert executor.name == "local"
    assert "does without Spark, as SPM_SPARK_MASTER says" in caplog.text


def test_a_site_without_spark_refuses_what_only_spark_does(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="this site does without Spark"):
        list(list_superseded(open_backend("memory://"), "lmdb://x", "none", tmp_path, [1], keep=1))
