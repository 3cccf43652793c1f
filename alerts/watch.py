"""Looks at an app's store as a judge must: what is known, how far that reaches, and what is new.

The order is that of PROTOCOL 26: the judge's time, THEN the rounds of accepting processes, THEN their watermarks, THEN
retractions, THEN pending records and data. Watermarks are moved first, so that what is known is seconds old. A process
remembers the probes and the sources of the apps that it judges. Enter by ``observer``.
"""

from dataclasses import dataclass, field

from alerts.evaluate import Observe
from alerts.judging import limits
from alerts.judging.knowledge.frontier import AcceptorSight, Frontier, median_now
from alerts.judging.knowledge.patience import SourceLog, ready_ms
from alerts.judging.knowledge.sight import KeptKnowledge, Sight
from alerts.judging.lane_plan import News
from alerts.models import Lane
from alerts.recording.limits import ALERTS_SOURCE
from alerts.recording.sessions import open_session
from ingest.accounting.passed_batches import PASSED
from ingest.accounting.watermark_keeper import advance_watermarks
from spm import query
from spm.bounded import LruCache
from spm.clock import Clock
from spm.query.reader import AppStorage
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.ledger import rounds
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.watermarks import ProcessWatermarks
from spm.store.versions import retractions
from spm.store.versions.knowledge import Knowledge
from spm.wire import metric_id


@dataclass(slots=True)
class AppWatch:
    """What a judge remembers of one app between two looks."""

    frontier: Frontier = field(default_factory=Frontier)
    sources: SourceLog = field(default_factory=SourceLog)
    seen: Knowledge | None = None


_WATCHES: LruCache[tuple[str, int], AppWatch] = LruCache(limits.APPS_WATCHED_MAX)
_CELLS = CommitCellCache()  # most rows of one look were there in the one before


def observer(url: str, clock: Clock) -> Observe:
    """Return what looks at the apps of a store."""
    query.configure(url)
    backend = open_backend(url)

    def observe(lane: Lane) -> Sight:
        watch = _WATCHES.get((url, lane.app_id))
        if watch is None:
            watch = AppWatch()
            _WATCHES.put((url, lane.app_id), watch)
        return look(backend, query.storage_for(lane.app_id), lane, watch, clock)

    return observe


def look(backend: Backend, storage: AppStorage, lane: Lane, watch: AppWatch, clock: Clock) -> Sight:
    """Look at the app of a lane once. Raises ``StoreUnavailable``."""
    at_ms = clock.now_ms()
    present = rounds.read(backend)
    advance_watermarks(backend, storage.app, at_ms, cells=_CELLS, passed=PASSED)
    knowledge, rows = storage.knowledge()
    acceptors = {number: _sight_of(each, storage.app, rows.get(number), at_ms) for number, each in present.items()}
    frontier_ms = watch.frontier.look(at_ms, acceptors)
    known = storage.known_at(knowledge)
    arrivals = known.arrivals(watch.seen, at_ms - limits.WATCH_BACK_MS, at_ms + limits.WATCH_AHEAD_MS)
    watch.sources.add(arrivals.sources, arrivals.newest_ms.tolist(), arrivals.accepted_ms.tolist())
    watch.seen = knowledge
    sources = {
        name: each
        for name, each in watch.sources.times().items()
        if each.newest_ms > at_ms - limits.WATCH_BACK_MS and name != ALERTS_SOURCE
    }
    alive = [each.at_ms for number, each in acceptors.items() if not watch.frontier.is_gone(number, each, at_ms)]
    now_ms = median_now(at_ms, alive, [each.due_ms for each in sources.values()])
    operation_knowledge = KeptKnowledge(knowledge.vector.to_bytes(), tuple(sorted(knowledge.retractions)))
    return Sight(
        open_session(storage.app, known),
        now_ms,
        min(now_ms, ready_ms(sources, frontier_ms)),
        frontier_ms,
        sources,
        operation_knowledge,
        lambda: _news(backend, known, knowledge, lane),
    )


def _sight_of(present: rounds.Round, app: int, row: ProcessWatermarks | None, at_ms: int) -> AcceptorSight:
    newest = row.newest if row is not None else None
    return AcceptorSight(
        present.number,
        present.at_ms,
        present.ended,
        app not in present.unannounced,
        newest.place if newest is not None else None,
        row.watermark.place if row is not None else (0, 0),
        row is not None and row.gone(at_ms),
    )


def _news(backend: Backend, known: AppStorage, knowledge: Knowledge, lane: Lane) -> News | None:
    """Return what became known since the lane's last operation and has samples up to its position."""
    before = lane.knowledge
    if before is None:
        return None
    oldest_ms = lane.position_ms - limits.LOOK_BACK_MS
    last = known.restore_knowledge(before.vector, before.retractions)
    arrivals = known.arrivals(last, oldest_ms, lane.position_ms)
    others = [source != ALERTS_SOURCE for source in arrivals.sources]  # readers of ALERTS see what judging says of them
    news = News(int(arrivals.oldest_ms[others].min()), frozenset(arrivals.oldest_of)) if any(others) else None
    changed = knowledge.retractions ^ last.retractions
    for each in retractions.read(backend, known.app) if changed else ():
        if each.number in changed and each.data_from_ms < lane.position_ms and each.data_to_ms > oldest_ms:
            metrics = frozenset({metric_id(each.metric.encode())}) if each.metric is not None else None
            news = News(each.data_from_ms + 1, metrics).join(news)
    return news
