"""From the slots of a query to its strips, one after the other in the order of time.

A unit that one generation holds alone, and of which nothing is hidden, is added as its pages are; any other as the
winners among its versions. On a busy process those pages are in the cache: they are looked for many slots at a time,
since a look for each hour costs more than all that is done with what it finds. Only what is there is taken so; a page
that must be read is read when its slot's turn comes, so that a query which reads too much ends before it has filled the
memory. Enter by ``Loom.weave``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import islice
from typing import NamedTuple, cast

from spm import limits
from spm.errors import IntegrityError, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.limits import DAY_SLOTS
from spm.query.request.provenance import RAW
from spm.query.samples.page_selection import Known, SharedPage, Sheaf, Woven
from spm.query.view.view import Asked, Scan, lines_key
from spm.store import keys
from spm.store.manifest import Generation
from spm.store.versions import generations
from spm.store.versions.generations import Unit
from spm.store.versions.retractions import touching

_AT_ONCE = 12_000  # strips whose pages are looked for together: a millisecond or two between ticks
UnitKey = tuple[int, int]  # bucket, slot
Slot = tuple[int, list[int]]  # and the buckets that hold samples of it


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
    _metrics: dict[int, tuple[tuple[int, ...], list[bytes]]] = field(default_factory=dict)  # bucket -> see ``_listed``

    def weave(self, slots: Iterable[Slot]) -> None:
        """Add the winners of these slots; raises ``QueryTooLarge``."""
        left, at_once = iter(slots), max(1, min(DAY_SLOTS, _AT_ONCE // self.woven.series))
        while some := list(islice(left, at_once)):
            bound = self._bound(some)
            for slot, buckets in some:
                self.scan.tick()
                self._slot(slot, buckets, bound)
                if self.woven.weaver.samples > limits.QUERY_SAMPLES_MAX:
                    raise QueryTooLarge(f"the query reads more than {limits.QUERY_SAMPLES_MAX} samples: narrow it")

    def _slot(self, slot: int, buckets: Sequence[int], bound: dict[UnitKey, Bound]) -> None:
        whole = self.woven.holds(slot)
        parts = [bucket for bucket in buckets if bucket in self.asked.by_bucket]
        if not self.asked.apart and len(parts) > 1:
            self.woven.picked(self.scan.slot(slot, buckets, self.asked), whole=whole)
            return
        for bucket in parts:
            if not self._unit(bucket, slot, bound.get((bucket, slot)), whole=whole):
                self.woven.picked(self.scan.slot(slot, [bucket], self.asked), whole=whole)

    def _unit(self, bucket: int, slot: int, bound: Bound | None, *, whole: bool) -> bool:
        """Add the pages of a unit, if they are all there is of it and nothing in them is hidden; whether they were."""
        try:
            if bound is None:
                return self._opened(bucket, slot, whole=whole)
            if bound.known is not None:
                self.scan.ground.use(RAW, slot)
                self.woven.opened(bound.pages, bound.sheaf, bound.known, whole=whole)
            return True
        except IntegrityError:
            self.scan.moved_or_lost(slot)
            raise

    def _opened(self, bucket: int, slot: int, *, whole: bool) -> bool:
        """The same for one of which not everything is in the cache."""
        scan, generation = self.scan, self._alone(bucket, slot)
        if generation is None:
            return False
        unit, wanted = Unit(bucket, scan.app, slot), self.asked.by_bucket[bucket]
        chunks = generations.open_chunks(scan.fetch, lambda: scan.directory(unit, generation), unit, generation, wanted)
        if not chunks:
            return True
        metrics, found = zip(*chunks, strict=True)
        pages = cast("tuple[SharedPage, ...]", found)  # as ``Rows`` makes them
        sheaf = self.woven.sheaf(metrics, pages, generation.timeline_shift)
        if not sheaf.pages:
            return True
        scan.ground.use(RAW, slot)
        known = scan.rows.lines(scan.reader, unit, generation, sheaf.pages)
        if known is None:
            return False
        self.woven.opened(pages, sheaf, known, whole=whole)
        return True

    def _alone(self, bucket: int, slot: int) -> Generation | None:
        """The generation that is all there is of a unit, and of which nothing is hidden; ``None``: there is none."""
        scan, lens, name = self.scan, self.scan.lens, (bucket, slot)
        if name in scan.tail.held or name in scan.tail.missing or lens.known is not None:
            return None
        entry = scan.entry(bucket, slot)
        if len(entry.state.generations) != 1 or entry.state.replay:
            return None
        if lens.asof_ms is not None and entry.stamp_max_ms > lens.asof_ms:
            return None
        if lens.retractions and touching(lens.retractions, entry, slot):
            return None
        return entry.state.generations[0]

    # --- what is in the cache

    def _bound(self, slots: Sequence[Slot]) -> dict[UnitKey, Bound]:
        """The units of some slots that can be added from the cache alone."""
        found: list[tuple[int, int, Generation]] = []
        names: list[bytes] = []
        for slot, buckets in slots:
            for bucket in buckets:
                generation = self._alone(bucket, slot) if bucket in self.asked.by_bucket else None
                if generation is not None and not generation.page_bits:  # else each page is work enough of its own
                    found.append((bucket, slot, generation))
                    names += keys.chunks(self._listed(bucket)[1], slot, generation.number, 0)
        return self._along(found, self.scan.rows.held("chunks", names)) if found else {}

    def _along(self, found: Sequence[tuple[int, int, Generation]], chunks: Sequence[object]) -> dict[UnitKey, Bound]:
        """Of some units and the pages of all of them, side by side, those of which everything is there."""
        whole: list[tuple[UnitKey, Sequence[SharedPage], Sheaf]] = []
        names: list[bytes] = []
        end = 0
        for bucket, slot, generation in found:
            metrics = self._listed(bucket)[0]
            begin, end = end, end + len(metrics)
            mine = chunks[begin:end]
            if set(map(type, mine)) == {SharedPage}:  # none is missing, and none damaged
                pages = cast("Sequence[SharedPage]", mine)
                sheaf = self.woven.sheaf(metrics, pages, generation.timeline_shift)
                whole.append(((bucket, slot), pages, sheaf))
                names.append(lines_key(bucket, self.scan.app, slot, generation, sheaf.pages))
        lines = self.scan.rows.held("lines", names)
        return {
            name: Bound(pages, sheaf, cast("Known | None", known))
            for (name, pages, sheaf), known in zip(whole, lines, strict=True)
            if known is not None or not sheaf.pages
        }

    def _listed(self, bucket: int) -> tuple[tuple[int, ...], list[bytes]]:
        """The metrics that may lie in a bucket, and with what the keys of their pages begin."""
        if bucket not in self._metrics:
            metrics = tuple(self.asked.by_bucket[bucket].series)
            self._metrics[bucket] = metrics, keys.chunk_heads(bucket, self.scan.app, metrics)
        return self._metrics[bucket]
