"""A check of a store whose file has damaged pages: it goes on with the rest, and names what cannot be reached."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollups.check.findings import UNREADABLE, Report
from rollups.check.fsck import fsck
from rollups.check.unreachable import report_unreachable
from spm.limits import FSCK_BLOCK_AGE_MS, HOUR_MS
from spm.store import keys
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.lmdb_gaps import Gap
from tests.model.world import APP, START, World
from tests.spm.store.backends.test_lmdb_gaps import BRANCH, LEAF, PAGE, in_a_child, pages

DAYS, DAY_MS = 4, 24 * HOUR_MS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with some days of one app, merged but for the last hours."""
    backend = LmdbBackend(str(tmp_path / "store"))
    world = World(store=backend)
    for hour in range(0, DAYS * 24, 3):
        world.send(
            *[(metric, hour * HOUR_MS + 1 + second, float(metric)) for metric in range(4) for second in range(9)]
        )
    world.roll(now_ms=START + DAYS * DAY_MS - HOUR_MS)
    backend.close()
    return tmp_path / "store" / "data.mdb"


def check(file: Path) -> tuple[Sequence[Gap], Report]:
    """A check of the app, around what cannot be reached."""
    backend = LmdbBackend(str(file.parent))
    gaps = backend.pass_by_damage()
    report = fsck(backend, APP, now_ms=START + DAYS * DAY_MS + FSCK_BLOCK_AGE_MS)
    report_unreachable(APP, gaps, report)
    backend.close()
    return gaps, report


def test_a_check_goes_on_around_each_damaged_page_and_names_what_it_held(file: Path) -> None:
    rows = check(file)[1].rows
    whole, counts = file.read_bytes(), list[int]()
    leaves = pages(file, LEAF)
    for page in [*pages(file, BRANCH)[::3], *leaves[:: max(1, len(leaves) // 12)]]:
        with file.open("r+b") as opened:
            opened.seek(page * PAGE)
            opened.write(bytes(PAGE))

        def act() -> None:
            gaps, report = check(file)
            unreadable = {finding.table for finding in report.findings if finding.kind == UNREADABLE}
            assert unreadable == {gap.table for gap in gaps}
            assert report.rows <= rows
            (file.parent / "found").write_text(str(len(gaps)))

        assert in_a_child(act) == 0, struct.unpack_from("<H", whole, page * PAGE + 10)
        counts.append(int((file.parent / "found").read_text()))
        file.write_bytes(whole)
    assert sum(counts) > 5


BLOCKS = "blocks of samples that no run has merged"
OTHERS = [keys.LogKey(shard, app, 9, 0, 0).to_bytes() for shard, app in ((3, APP + 1), (4, APP - 1))]
LOG = [keys.LogKey(3, APP, hour, 0, 0).to_bytes() for hour in (24 * 20_002 + 5, 24 * 20_000 + 7, 24 * 20_000 + 6)]


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (
            Gap("log", LOG[0] + b"v", LOG[1] + b"v"),
            "blocks of samples that no run has merged of 2024-10-04 to 2024-10-06",
        ),
        (Gap("log", LOG[1] + b"v", LOG[2] + b"v"), "blocks of samples that no run has merged of 2024-10-04 cannot"),
        (Gap("log", None, LOG[1] + b"v"), "of days that it cannot say"),
        (
            Gap("chunks", keys.chunk(3, APP, 9, 480_000, 1, 0) + b"v", keys.chunk(3, APP, 9, 479_999, 1, 0) + b"v"),
            "merged samples of 2024-10-03 to 2024-10-04",
        ),
        (Gap("manifest", keys.manifest(APP, 20_000) + b"v", keys.manifest(APP, 20_000) + b"v"), "of 2024-10-04"),
        (Gap("config", b"a\\0v", b"b\\0v"), "placement tables"),
        (Gap("marks", None, None), "watermarks"),
        (Gap("marks", keys.watermark(APP + 1, 1) + b"v", None), None),
        (
            Gap("log", keys.LogKey(3, APP + 1, 9, 0, 0).to_bytes() + b"v", keys.LogKey(4, APP - 1, 9, 0, 0).to_bytes()),
            None,
        ),
    ],
    ids=range(9),
)
def test_a_finding_names_the_kind_of_row_and_its_days(gap: Gap, text: str | None) -> None:
    report = Report()
    report_unreachable(APP, [gap], report)
    assert [text is not None and text in finding.text for finding in report.findings] == [True] * (text is not None)
    assert report.status == (text is not None)
