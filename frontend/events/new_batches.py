"""Which apps have new samples that readers see: by the newest pending records, which writers put last.

The keys of pending records begin with shard and app, newest first, so one short scan per app tells. A store that knows
its own version (the embedded one) is not scanned at all while nothing was written. Enter by ``NewBatches``.
"""

from collections.abc import Sequence
from itertools import islice

from spm import limits
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader, version_of
from spm.store.keys import PendingKey, PlacementTable


class NewBatches:
    """What this process has seen of the pending records of some apps."""

    def __init__(self, store: Backend) -> None:
        self._store = store
        self._known: dict[int, tuple[int, frozenset[bytes]]] = {}  # app -> number of the last news, newest records
        self._version: int | None = None
        self._turn = 0

    def look(self, apps: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return app → (number, newest acceptance in ms) of apps with batches that were not there at the last look.

        The first look at an app counts all that it finds as one. Numbers grow, and are near the ms of acceptance. Of
        very many apps some are looked at by the next call. Raises ``StoreUnavailable``.
        """
        self._known = {app: self._known[app] for app in apps if app in self._known}
        with self._store.snapshot() as reader:
            version = version_of(reader)
            unchanged = version is not None and version == self._version
            candidates = [app for app in apps if app not in self._known] if unchanged else list(apps)
            turn = self._take_turn(candidates)
            self._version = version if len(turn) == len(candidates) else None
            placements = epochs.read_many(reader, turn, PlacementTable()) if turn else {}
            news = {app: self._look_at(reader, app, placements[app]) for app in turn}
        return {app: each for app, each in news.items() if each is not None}

    def _take_turn(self, apps: list[int]) -> list[int]:
        if len(apps) <= limits.EVENTS_LOOK_APPS_MAX:
            return apps
        start = self._turn % len(apps)
        self._turn = start + limits.EVENTS_LOOK_APPS_MAX
        return (apps[start:] + apps[:start])[: limits.EVENTS_LOOK_APPS_MAX]

    def _look_at(self, reader: Reader, app: int, placement: PlacementTable) -> tuple[int, int] | None:
        newest = list[bytes]()
        for shard in placement.all_shards(app):
            start, stop = keys.app_range(shard, app)
            rows = reader.scan("pending", start, stop, keys_only=True, limit=limits.EVENTS_BATCHES_SEEN)
            newest += (key for key, _ in islice(rows, limits.EVENTS_BATCHES_SEEN))
        number, known = self._known.get(app, (0, frozenset()))
        times = [PendingKey.parse(key).ingest_ms for key in newest if key not in known]
        # A run that removes the newest records uncovers older ones, which are no news.
        fresh = [ms for ms in times if ms > number - limits.EVENTS_BATCH_LATE_MS]
        if not fresh:
            self._known[app] = number, frozenset(newest)
            return None
        number = max(*fresh, number + 1)
        self._known[app] = number, frozenset(newest)
        return number, max(PendingKey.parse(key).ingest_ms for key in newest)
