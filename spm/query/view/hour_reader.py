"""From the hours of a query to its strips, one after the other in the order of time.

A unit that one generation holds alone, and of which nothing is hidden, is added as its pages are; any other as the
winners among its versions. On a busy process those pages are in the cache: they are looked for many hours at a time,
since a look for each hour costs more than all that is done with what it finds. Only what is there is taken so; a page
that must be read is read when its hour's turn comes, so that a query which reads too much ends before it has filled the
memory. Enter by ``Loom.weave``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import islice
from typing import NamedTuple, cast

from spm import limits
from spm.errors import IntegrityError, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS
from spm.query.request.provenance import RAW
from spm.query.samples.page_selection import Known, SharedPage, Sheaf, Woven
from spm.query.view.view import Asked, Scan, lines_key
from spm.store import keys
from spm.store.manifest import Generation
from spm.store.versions import generations
from spm.store.versions.generations import HourShardData
from spm.store.versions.retractions import touching

_AT_ONCE = 12_000  # strips whose pages are looked for together: a millisecond or two between ticks
UnitKey = tuple[int, int]  # shard, hour
Hour = tuple[int, list[int]]  # and the shards that hold samples of it


class Bound(NamedTuple):
    """A unit's pages with what is wanted of them, and along which lines."""

    pages: Sequence[SharedPage]
    sheaf: Sheaf
    known: Known | None  # none only where no series is wanted


@dataclass(frozen=True, slots=True)
class Loom:
    """Weaves what one query asks for."""

    scan: Scan
    asked: Asked
    woven: Woven
    _metrics: dict[int, tuple[tuple[int, ...], list[bytes]]] = field(default_factory=dict)  # shard -> see ``_listed``

    def weave(self, hours: Iterable[Hour]) -> None:
        """Add the winners of these hours; raises ``QueryTooLarge``."""
        left, at_once = iter(hours), max(1, min(DAY_HOURS, _AT_ONCE // self.woven.series))
        while some := list(islice(left, at_once)):
            bound = self._bound(some)
            for hour, shards in some:
                self.scan.tick()
                self._hour(hour, shards, bound)
                if self.woven.weaver.samples > limits.QUERY_SAMPLES_MAX:
                    raise QueryTooLarge(f"the query reads more than {limits.QUERY_SAMPLES_MAX} samples: narrow it")

    def _hour(self, hour: int, shards: Sequence[int], bound: dict[UnitKey, Bound]) -> None:
        whole = self.woven.holds(hour)
        parts = [shard for shard in shards if shard in self.asked.by_shard]
        if not self.asked.apart and len(parts) > 1:
            self.woven.picked(self.scan.hour(hour, shards, self.asked), whole=whole)
            return
        for shard in parts:
            if not self._unit(shard, hour, bound.get((shard, hour)), whole=whole):
                self.woven.picked(self.scan.hour(hour, [shard], self.asked), whole=whole)

    def _unit(self, shard: int, hour: int, bound: Bound | None, *, whole: bool) -> bool:
        """Add the pages of a unit, if they are all there is of it and nothing in them is hidden; whether they were."""
        try:
            if bound is None:
                return self._opened(shard, hour, whole=whole)
            if bound.known is not None:
                self.scan.ground.use(RAW, hour)
                self.woven.opened(bound.pages, bound.sheaf, bound.known, whole=whole)
            return True
        except IntegrityError:
            self.scan.moved_or_lost(hour)
            raise

    def _opened(self, shard: int, hour: int, *, whole: bool) -> bool:
        """The same for one of which not everything is in the cache."""
        scan, generation = self.scan, self._alone(shard, hour)
        if generation is None:
            return False
        unit, wanted = HourShardData(shard, scan.app, hour), self.asked.by_shard[shard]
        chunks = generations.open_chunks(scan.fetch, lambda: scan.directory(unit, generation), unit, generation, wanted)
        if not chunks:
            return True
        metrics, found = zip(*chunks, strict=True)
        pages = cast("tuple[SharedPage, ...]", found)  # as ``Rows`` makes them
        sheaf = self.woven.sheaf(metrics, pages, generation.timeline_shift)
        if not sheaf.pages:
            return True
        scan.ground.use(RAW, hour)
        known = scan.rows.lines(scan.reader, unit, generation, sheaf.pages)
        if known is None:
            return False
        self.woven.opened(pages, sheaf, known, whole=whole)
        return True

    def _alone(self, shard: int, hour: int) -> Generation | None:
        """The generation that is all there is of a unit, and of which nothing is hidden; ``None``: there is none."""
        scan, lens, name = self.scan, self.scan.lens, (shard, hour)
        if name in scan.tail.held or name in scan.tail.missing or lens.known is not None:
            return None
        entry = scan.entry(shard, hour)
        if len(entry.state.generations) != 1 or entry.state.replay:
            return None
        if lens.asof_ms is not None and entry.stamp_max_ms > lens.asof_ms:
            return None
        if lens.retractions and touching(lens.retractions, entry, hour):
            return None
        return entry.state.generations[0]

    # --- what is in the cache

    def _bound(self, hours: Sequence[Hour]) -> dict[UnitKey, Bound]:
        """The units of some hours that can be added from the cache alone."""
        found: list[tuple[int, int, Generation]] = []
        names: list[bytes] = []
        for hour, shards in hours:
            for shard in shards:
                generation = self._alone(shard, hour) if shard in self.asked.by_shard else None
                if generation is not None and not generation.page_bits:  # else each page is work enough of its own
                    found.append((shard, hour, generation))
                    names += keys.chunks(self._listed(shard)[1], hour, generation.number, 0)
        return self._along(found, self.scan.rows.held("chunks", names)) if found else {}

    def _along(self, found: Sequence[tuple[int, int, Generation]], chunks: Sequence[object]) -> dict[UnitKey, Bound]:
        """Of some units and the pages of all of them, side by side, those of which everything is there."""
        whole: list[tuple[UnitKey, Sequence[SharedPage], Sheaf]] = []
        names: list[bytes] = []
        end = 0
        for shard, hour, generation in found:
            metrics = self._listed(shard)[0]
            begin, end = end, end + len(metrics)
            mine = chunks[begin:end]
            if set(map(type, mine)) == {SharedPage}:  # none is missing, and none damaged
                pages = cast("Sequence[SharedPage]", mine)
                sheaf = self.woven.sheaf(metrics, pages, generation.timeline_shift)
                whole.append(((shard, hour), pages, sheaf))
                names.append(lines_key(shard, self.scan.app, hour, generation, sheaf.pages))
        lines = self.scan.rows.held("lines", names)
        return {
            name: Bound(pages, sheaf, cast("Known | None", known))
            for (name, pages, sheaf), known in zip(whole, lines, strict=True)
            if known is not None or not sheaf.pages
        }

    def _listed(self, shard: int) -> tuple[tuple[int, ...], list[bytes]]:
        """The metrics that may lie in a shard, and with what the keys of their pages begin."""
        if shard not in self._metrics:
            metrics = tuple(self.asked.by_shard[shard].series)
            self._metrics[shard] = metrics, keys.chunk_heads(shard, self.scan.app, metrics)
        return self._metrics[shard]
