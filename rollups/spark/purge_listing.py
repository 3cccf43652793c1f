"""What a purge would delete, as a job of Spark over all days at once: the listing that ``purge.purge`` then goes by.

Enter by ``going``. Tasks list the tables by shard and read the manifests by day; a join says what nobody needs
(``frames.purge_list``), and only of that the driver learns the keys. Nothing is deleted here: ``purge`` fences each day
and looks at every place again, so a listing that is old, or too long, deletes nothing that is needed.
"""

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from rollups.decide.superseded import Listed, Place
from rollups.delete import listing
from rollups.delete.listing import PAGES, TABLES, Listing
from rollups.spark import frames
from rollups.spark.session import failing
from spm import limits
from spm.limits import DAY_HOURS
from spm.store.backends.base import Reader

_PLACE = ["shard", "hour", "number"]
_NUMBERS = 1 << 64


def going(session: SparkSession, reader: Reader, url: str, app: int, keep: int) -> dict[int, Listing]:
    """By day, what an app's purge would delete, at most ``PURGE_PAGES_MAX`` rows; raises ``TasksFailed``."""
    shards = listing.every_shard(reader, app)
    there = frames.listed(session, url, app, TABLES, shards).persist()
    with failing():
        try:
            days = [row.day for row in there.select(F.expr(f"hour div {DAY_HOURS}").alias("day")).distinct().collect()]
            said = frames.words(session, url, app, days, shards, keep)
            gone = frames.purge_list(there, said).select("table", *_PLACE).distinct()
            made = there.where("table = 'inputs'").select(*_PLACE, F.lit(True).alias("directory"))
            marked = gone.join(made, on=_PLACE, how="left")
            rows = marked.orderBy("hour", "shard", "number").limit(limits.PURGE_PAGES_MAX).collect()
            return _by_day(session, url, app, rows)
        finally:
            there.unpersist()


def _by_day(session: SparkSession, url: str, app: int, rows: list[Row]) -> dict[int, Listing]:
    """Generations with a directory by their place alone; what has none, and blocks, with their keys."""
    found: dict[int, Listing] = {}
    keyless: dict[tuple[str, int], list[Place]] = {}
    for row in rows:
        place = _place(row)
        if row.table != "log" and row.directory:
            found.setdefault(place[1] // DAY_HOURS, Listing()).made.add(place)
        else:
            keyless.setdefault((row.table, row.shard), []).append(place)
    if keyless:
        for row in frames.keys_of(session, url, app, keyless).limit(limits.PURGE_PAGES_MAX).toLocalIterator():
            day = found.setdefault(row.hour // DAY_HOURS, Listing())
            if row.table in PAGES:
                day.pages.setdefault(_place(row), []).append((row.table, bytes(row.key)))
            else:
                day.blocks[Listed("log", *_place(row))] = bytes(row.key)
    return found


def _place(row: Row) -> Place:
    return row.shard, row.hour, row.number % _NUMBERS
