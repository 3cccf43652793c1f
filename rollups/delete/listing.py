"""What lies in the store of an app, by day: generations, their pages where no directory names them, and blocks.

Enter by ``everything``, which lists a whole app in this process, or by ``of_day``; a Spark job makes the same listing
of ``counts`` and ``keys_at``, table by table and shard by shard. Nothing here reads a manifest or deletes anything.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rollups.decide.superseded import Listed, Place
from spm import limits
from spm.limits import DAY_HOURS
from spm.store import epochs as store_epochs
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.manifest import first_day_of, month_of

PAGES = ("chunks", "timelines", "hours", "days")
TABLES = (*PAGES, "inputs", "log")


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a day (a month's days lie with its first): generations, pages without ``inputs``, blocks."""

    made: set[Place] = field(default_factory=set)
    pages: dict[Place, list[tuple[str, bytes]]] = field(default_factory=dict)  # (table, key)
    blocks: dict[Listed, bytes] = field(default_factory=dict)


def every_shard(store: Reader, app: int) -> list[int]:
    """Every shard in which data of the app lies or has ever lain: of closed epochs, too."""
    epochs = store_epochs.read(store, app).epochs
    return sorted({shard for epoch in epochs for shard in epoch.all(app)})


def everything(store: Reader, app: int, shards: Sequence[int], days: Collection[int] | None) -> dict[int, Listing]:
    """Everything by day. What ``inputs`` lists is kept as a number only, since pages by the million fit no memory."""
    found: dict[int, Listing] = {}
    pages = 0
    for place, _ in scan(store, "inputs", app, shards, days):
        found.setdefault(place[1] // DAY_HOURS, Listing()).made.add(place)
    for table in PAGES:
        for place, key in scan(store, table, app, shards, days):
            listing = found.setdefault(place[1] // DAY_HOURS, Listing())
            if place not in listing.made and pages < limits.PURGE_PAGES_MAX:
                listing.pages.setdefault(place, []).append((table, key))
                pages += 1
    for place, key in islice(scan(store, "log", app, shards, days), limits.PURGE_PAGES_MAX):
        found.setdefault(place[1] // DAY_HOURS, Listing()).blocks[Listed("log", *place)] = key
    return found


def scan(
    store: Reader, table: str, app: int, shards: Sequence[int], days: Collection[int] | None
) -> Iterator[tuple[Place, bytes]]:
    """Every row of a table in these shards, with its place; ``days``: of these alone."""
    for key, _ in scan_ranges(store, table, [keys.app_range(shard, app) for shard in shards], keys_only=True):
        place = place_of(table, key)
        if days is None or place[1] // DAY_HOURS in days or (table == "days" and month_has(place[1], days)):
            yield place, key


def of_day(store: Reader, app: int, shards: Sequence[int], day: int) -> Listing:
    """Generations with a directory and blocks of one day, by its own key ranges; pages are left out."""
    first, last = day * DAY_HOURS, (day + 1) * DAY_HOURS - 1
    ranges = [keys.hours_range(shard, app, first, last) for shard in shards]
    found = Listing()
    found.made.update(place_of("inputs", key) for key, _ in scan_ranges(store, "inputs", ranges, keys_only=True))
    for key, _ in islice(scan_ranges(store, "log", ranges, keys_only=True), limits.PURGE_PAGES_MAX):
        found.blocks[Listed("log", *place_of("log", key))] = key
    return found


def counts(store: Reader, table: str, app: int, shard: int) -> Mapping[Place, int]:
    """Rows by place of one table in one shard."""
    return Counter(place for place, _ in scan(store, table, app, [shard], None))


def keys_at(
    store: Reader, table: str, app: int, shard: int, places: Collection[Place]
) -> Iterator[tuple[Place, bytes]]:
    """The keys of the rows at these places of one shard."""
    if table == "log":
        ranges = [keys.log_range(shard, app, hour) for hour in sorted({hour for _, hour, _ in places})]
    else:
        ranges = [keys.app_range(shard, app)]
    for key, _ in scan_ranges(store, table, ranges, keys_only=True):
        place = place_of(table, key)
        if place in places:
            yield place, key


def month_has(hour: int, days: Collection[int]) -> bool:
    """Whether any of the days lies in the month that begins with this hour."""
    return any(month_of(day) == month_of(hour // DAY_HOURS) for day in days)


def place_of(table: str, key: bytes) -> Place:
    """(shard, hour, generation or batch) of a row; for hours and days the hour of their inputs."""
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
