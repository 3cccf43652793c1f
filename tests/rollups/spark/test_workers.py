"""Claims about what Spark's workers are given: masters, archives, a daemon that settles its sources."""

import os
import zipfile
from pathlib import Path

import pytest

from rollups.run import warm_kernels
from rollups.spark import daemon, shipment
from rollups.spark.cluster import ClusterUnfit, is_local, refuse_local_files
from rollups.spark.session import first_line, shipment_options, with_retries, worker_python

MASTERS = {
    "all cores of this machine": ("local[*]", "local[*,4]"),
    "some cores": ("local[2]", "local[2,4]"),
    "one core": ("local", "local[1,4]"),
    "tries that are given stay": ("local[2,8]", "local[2,8]"),
    "a cluster has retries of its own": ("spark://host:7077", "spark://host:7077"),
}


@pytest.mark.parametrize("case", MASTERS)
def test_a_master_on_this_machine_is_given_retries(case: str) -> None:
    given, wanted = MASTERS[case]
    assert with_retries(given) == wanted
    assert is_local(given) == given.startswith("local")


def test_a_cluster_is_refused_for_a_store_on_this_machines_disk() -> None:
    refuse_local_files("lmdb:///data", "local[*]")
    refuse_local_files("hbase://host:9090/spm", "spark://host:7077")
    with pytest.raises(ClusterUnfit, match="LMDB is a file of this machine"):
        refuse_local_files("lmdb:///data", "spark://host:7077")


def test_sources_travel_under_a_name_of_their_content_and_older_ones_go(tmp_path: Path) -> None:
    (tmp_path / "sources-old.zip").touch()
    archive = shipment.sources(tmp_path)
    assert shipment.sources(tmp_path) == archive
    assert [f.name for f in tmp_path.iterdir()] == [archive.name]
    names = zipfile.ZipFile(archive).namelist()
    assert {"rollups/compute/task.py", "spm/store/keys.py"} <= set(names)
    assert not [name for name in names if not name.endswith(".py")]


def test_with_a_python_of_the_workers_own_no_packages_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPM_SPARK_PYTHON", "/opt/spm/bin/python")
    given = shipment_options(tmp_path)
    assert given["spark.executorEnv.PYTHONPATH"] == "spm_sources"
    assert given["spark.archives"].endswith(f"{given['spark.executorEnv.SPM_SHIPPED']}.zip#spm_sources")
    assert worker_python(os.environ) == "/opt/spm/bin/python"


def test_sources_that_were_shipped_are_settled_once_in_the_users_cache(tmp_path: Path) -> None:
    sources = tmp_path / "unpacked"
    (sources / "rollups").mkdir(parents=True)
    (sources / "rollups" / "daemon.py").write_text("x = 1\n")
    environ = {"SPM_SHIPPED": "sources-1", "SPM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": "spm_sources"}
    settled = daemon.lasting_environment(environ, sources)
    assert settled is not None
    place, rest = settled["PYTHONPATH"].split(os.pathsep)
    assert (Path(place) / "rollups" / "daemon.py").read_text() == "x = 1\n"
    assert rest == "spm_sources"
    assert Path(settled["NUMBA_CACHE_DIR"]).parent == Path(place).parent
    assert daemon.lasting_environment(settled, sources) is None
    assert daemon.lasting_environment(environ, sources) == settled
    assert daemon.lasting_environment({}, sources) is None


def test_only_the_newest_versions_stay_in_the_cache(tmp_path: Path) -> None:
    sources = tmp_path / "unpacked"
    sources.mkdir()
    for number in range(daemon.VERSIONS_KEPT + 3):
        daemon.lasting_environment({"SPM_SHIPPED": f"sources-{number}", "SPM_CACHE": str(tmp_path / "cache")}, sources)
    assert len(list((tmp_path / "cache" / "spark").iterdir())) == daemon.VERSIONS_KEPT


def test_without_a_cache_kernels_are_compiled_in_the_executors_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settled = daemon.lasting_environment({"SPM_SHIPPED": "s", "SPM_CACHE": str(tmp_path / "file")}, tmp_path)
    assert settled is not None
    assert settled["NUMBA_CACHE_DIR"] == str(Path.cwd() / "kernels")


def test_the_rehearsal_goes_through_every_task() -> None:
    warm_kernels.warm_up()


def test_the_sentence_of_a_spark_error_is_what_the_worker_said() -> None:
    message = (
        "Job aborted.\n  Traceback (most recent call last):\n  File x\nzlib.error: bad\nspm.errors.CorruptBlock: no\n"
    )
    assert first_line(RuntimeError(message)) == "Job aborted."
    assert (
        first_line(RuntimeError(message + "ValueError: 7 is no shard\nat org.apache.x\n"))
        == "ValueError: 7 is no shard"
    )
