"""Lists an app's rows by day: generations, their pages if no directory names them, and blocks.

Enter by ``list_all``, which lists an entire app in this process, or by ``list_day``; a Spark job builds an equal
listing from ``count_rows`` and ``keys_at``, by table and shard. Nothing here reads a manifest or deletes anything.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rollups.decide.superseded import ListedRows, Place
from spm import limits
from spm.limits import DAY_HOURS
from spm.store import epochs as store_epochs
from spm.store import keys
from spm.store.backends.base import Reader, scan_ranges
from spm.store.manifest import first_day_of, month_of

PAGES = ("chunks", "timelines", "hours", "days")
TABLES = (*PAGES, "inputs", "log")


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of a day (a month's rows belong to its first day): generations, pages without ``inputs``, blocks."""

    generations: set[Place] = field(default_factory=set)
    pages: dict[Place, list[tuple[str, bytes]]] = field(default_factory=dict)  # (table, key)
    blocks: dict[ListedRows, bytes] = field(default_factory=dict)


def every_shard(store: Reader, app: int) -> list[int]:
    """Every shard that has or had data of the app, also by closed epochs."""
    epochs = store_epochs.read(store, app).epochs
    return sorted({shard for epoch in epochs for shard in epoch.all_shards(app)})


def list_all(store: Reader, app: int, shards: Sequence[int], days: Collection[int] | None) -> dict[int, Listing]:
    """Lists all rows by day. Pages named in ``inputs`` count as their generation's number, to bound the memory."""
    listings: dict[int, Listing] = {}
    pages = 0
    for place, _ in scan(store, "inputs", app, shards, days):
        listings.setdefault(place[1] // DAY_HOURS, Listing()).generations.add(place)
    for table in PAGES:
        for place, key in scan(store, table, app, shards, days):
            listing = listings.setdefault(place[1] // DAY_HOURS, Listing())
            if place not in listing.generations and pages < limits.PURGE_PAGES_MAX:
                listing.pages.setdefault(place, []).append((table, key))
                pages += 1
    for place, key in islice(scan(store, "log", app, shards, days), limits.PURGE_PAGES_MAX):
        listings.setdefault(place[1] // DAY_HOURS, Listing()).blocks[ListedRows("log", *place)] = key
    return listings


def scan(
    store: Reader, table: str, app: int, shards: Sequence[int], days: Collection[int] | None
) -> Iterator[tuple[Place, bytes]]:
    """Yields every row of a table in these shards with its place; ``days``: only rows of these days."""
    for key, _ in scan_ranges(store, table, [keys.app_range(shard, app) for shard in shards], keys_only=True):
        place = place_of(table, key)
        if days is None or place[1] // DAY_HOURS in days or (table == "days" and month_has(place[1], days)):
            yield place, key


def list_day(store: Reader, app: int, shards: Sequence[int], day: int) -> Listing:
    """Lists one day's generations with a directory and its blocks, by its own key ranges, without pages."""
    first, last = day * DAY_HOURS, (day + 1) * DAY_HOURS - 1
    ranges = [keys.hours_range(shard, app, first, last) for shard in shards]
    listing = Listing()
    listing.generations.update(
        place_of("inputs", key) for key, _ in scan_ranges(store, "inputs", ranges, keys_only=True)
    )
    for key, _ in islice(scan_ranges(store, "log", ranges, keys_only=True), limits.PURGE_PAGES_MAX):
        listing.blocks[ListedRows("log", *place_of("log", key))] = key
    return listing


def count_rows(store: Reader, table: str, app: int, shard: int) -> Mapping[Place, int]:
    """Counts the rows of one table in one shard by place."""
    return Counter(place for place, _ in scan(store, table, app, [shard], None))


def keys_at(
    store: Reader, table: str, app: int, shard: int, places: Collection[Place]
) -> Iterator[tuple[Place, bytes]]:
    """Yields the keys of the rows at these places of one shard."""
    if table == "log":
        ranges = [keys.log_range(shard, app, hour) for hour in sorted({hour for _, hour, _ in places})]
    else:
        ranges = [keys.app_range(shard, app)]
    for key, _ in scan_ranges(store, table, ranges, keys_only=True):
        place = place_of(table, key)
        if place in places:
            yield place, key


def month_has(hour: int, days: Collection[int]) -> bool:
    """Whether any of the days is in the month that begins with this hour."""
    return any(month_of(day) == month_of(hour // DAY_HOURS) for day in days)


def place_of(table: str, key: bytes) -> Place:
    """The (shard, hour, generation or batch) of a row; for hours and days the hour is that of their inputs row."""
    if table == "log":
        block = keys.LogKey.parse(key)
        return block.shard, block.hour, block.batch
    if table == "timelines":
        shard, _, hour, generation, _ = keys.parse_timeline(key)
        return shard, hour, generation
    if table == "inputs":
        shard, _, hour, generation = keys.parse_inputs(key)
        return shard, hour, generation
    shard, _, _, period, generation, _ = keys.parse_chunk(key)
    if table == "chunks":
        return shard, period, generation
    return shard, (period if table == "hours" else first_day_of(period)) * DAY_HOURS, generation
