"""Lists what a purge would delete, as a Spark job over all days at once; ``purge.purge`` uses the listing.

Enter by ``list_superseded``. Tasks list the tables by shard and read the manifests by day; a join selects the rows that
nobody needs (``frames.superseded_rows``), and the driver reads the keys of these alone. Nothing is deleted here:
``purge`` fences each day and checks every place again, so an old or too long listing deletes nothing that is needed.
"""

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from rollups.decide.superseded import ListedRows, Place
from rollups.delete import listing
from rollups.delete.listing import PAGES, TABLES, Listing
from rollups.spark import frames
from rollups.spark.session import translate_errors
from spm import limits
from spm.limits import DAY_HOURS
from spm.store.backends.base import Reader

_PLACE = ["shard", "hour", "number"]
_NUMBERS = 1 << 64


def list_superseded(session: SparkSession, reader: Reader, url: str, app: int, keep: int) -> dict[int, Listing]:
    """Lists by day what an app's purge would delete, at most ``PURGE_PAGES_MAX`` rows; raises ``TasksFailed``."""
    shards = listing.every_shard(reader, app)
    listed = frames.listed_rows(session, url, app, TABLES, shards).persist()
    with translate_errors():
        try:
            days = [row.day for row in listed.select(F.expr(f"hour div {DAY_HOURS}").alias("day")).distinct().collect()]
            references = frames.references(session, url, app, days, shards, keep)
            superseded = frames.superseded_rows(listed, references).select("table", *_PLACE).distinct()
            directories = listed.where("table = 'inputs'").select(*_PLACE, F.lit(True).alias("directory"))
            superseded_rows = superseded.join(directories, on=_PLACE, how="left")
            rows = superseded_rows.orderBy("hour", "shard", "number").limit(limits.PURGE_PAGES_MAX).collect()
            return _by_day(session, url, app, rows)
        finally:
            listed.unpersist()


def _by_day(session: SparkSession, url: str, app: int, rows: list[Row]) -> dict[int, Listing]:
    """Groups rows by day: generations with a directory by their place alone, other pages and blocks with their keys."""
    listings: dict[int, Listing] = {}
    keyless: dict[tuple[str, int], list[Place]] = {}
    for row in rows:
        place = _place(row)
        if row.table != "log" and row.directory:
            listings.setdefault(place[1] // DAY_HOURS, Listing()).generations.add(place)
        else:
            keyless.setdefault((row.table, row.shard), []).append(place)
    if keyless:
        for row in frames.keys_of(session, url, app, keyless).limit(limits.PURGE_PAGES_MAX).toLocalIterator():
            day = listings.setdefault(row.hour // DAY_HOURS, Listing())
            if row.table in PAGES:
                day.pages.setdefault(_place(row), []).append((row.table, bytes(row.key)))
            else:
                day.blocks[ListedRows("log", *_place(row))] = bytes(row.key)
    return listings


def _place(row: Row) -> Place:
    return row.shard, row.hour, row.number % _NUMBERS
