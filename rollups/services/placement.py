"""Changes the placement of apps, with database records: the command, the admin and maintenance call it (PROTOCOL 22).

``redistribute`` opens another epoch if requested, then compacts, moves and closes until every former epoch is closed or
the rest must wait; ``widen`` does this for apps that have grown, and continues moves in progress. ``summarise``
describes an app's placement. All of them may be killed; the next call continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollups.models import Run, RunKind, RunState
from rollups.move import redistribute as moving
from rollups.run.driver import Driver, Progress
from rollups.services.runs import Site, executor_of, record_report, record_run, roll, start_process
from rollups.services.troubles import Troubles
from spm import limits
from spm.errors import PlacementUnfit
from spm.store import epochs, placement
from spm.store.keys import CLOSED, PlacementEpoch

Watch = Callable[[Progress], None]
_NOT_CLOSED = "Not closed yet:"


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The properties of a new placement epoch; ``None``: as in the newest epoch."""

    spread: int | None = None
    shards: int | None = None
    function: str | None = None

    def open(self, site: Site, app: int) -> None:
        """Opens the epoch, if any property is given. Raises ``Refused`` for impossible values."""
        if self == PlacementRequest():
            return
        newest = epochs.read(site.store, app).newest
        epochs.open_epoch(
            site.store,
            app,
            function=self.function or placement.name_of(newest.function),
            shards=newest.shards if self.shards is None else self.shards,
            spread=newest.spread if self.spread is None else self.spread,
        )


@dataclass(frozen=True, slots=True)
class MoveResult:
    """How many hour shards were moved, and why former epochs are still open."""

    hour_shards: int
    obstacles: tuple[str, ...]  # why an epoch is not closed yet


def redistribute(
    site: Site,
    app: int,
    request: PlacementRequest = PlacementRequest(),
    *,
    executor: str = "local",
    wait_s: float = 0.0,
    watch: Watch = lambda _: None,
) -> MoveResult:
    """Opens the requested epoch, moves the app's data to it, and closes the former epochs as far as possible.

    A later call closes the others; a call without a request continues a move that was begun.
    """
    request.open(site, app)
    hour_shards, obstacles = 0, tuple[str, ...]()
    for _ in range(limits.SPREAD_ROUNDS):
        # Pending data is compacted first, and then moved with the rest. A round sets former epochs closing: data that
        # a writer still puts there meanwhile is compacted and moved by the next round.
        roll(site, apps=[app], kind=RunKind.FULL, executor=executor, watch=watch, wait_s=wait_s)
        result = _round(site, app, executor=executor, wait_s=wait_s, watch=watch)
        before, obstacles, hour_shards = obstacles, result.obstacles, hour_shards + result.hour_shards
        if not obstacles or (obstacles == before and not result.hour_shards):
            break
    return MoveResult(hour_shards, obstacles)


def _round(site: Site, app: int, *, executor: str, wait_s: float, watch: Watch) -> MoveResult:
    """Moves once, tries to close former epochs, and saves the outcome in a run's row."""
    with record_run(site, kind=RunKind.REDISTRIBUTE, executor=executor, apps=[app], watch=watch, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with executor_of(site, executor, work.at) as runner:
            report = moving.migrate(driver, runner, app, run=work.row.number)
        closings = [moving.close_epoch(site.store, app, epoch.number, work.at) for epoch in _former(site, app)]
        obstacles = tuple(line for closing in closings for line in closing.obstacles)
        row = record_report(work.row, report, site.now())
        if obstacles:  # a row even of a round that moved nothing: it names the obstacles
            text = "\n".join([*([row.message] if row and row.message else []), _NOT_CLOSED, *obstacles])
            work.row.state, work.row.finished, work.row.message = RunState.DONE, site.now(), text[:10_000]
            work.row.save()
    return MoveResult(sum(day.hour_shards for day in report.days), obstacles)


def _former(site: Site, app: int) -> list[PlacementEpoch]:
    """The former epochs that are not closed."""
    return [epoch for epoch in epochs.read(site.store, app).epochs[:-1] if epoch.state != CLOSED]


def widen(site: Site, *, apps: Sequence[int]) -> list[int]:
    """Spreads apps that have grown, and continues moves in progress; returns the numbers of these apps."""
    moved_apps, noted = list[int](), Troubles("widen", site.now())
    for app in apps:
        with noted.isolated(app):
            rate = moving.measure_rate(site.store, app, site.clock.now_ms())
            moving.widen(site.store, app, rate)
            if not epochs.read(site.store, app).has_one_live_epoch:
                executor = "spark" if rate > limits.ROLL_LOCAL_SAMPLES_MAX else "local"
                redistribute(site, app, executor=executor, wait_s=limits.ROLL_WAIT_S)
                moved_apps.append(app)
    return moved_apps


# --- for people -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacementSummary:
    """The placement of an app as texts."""

    newest: str
    former: tuple[str, ...]  # epochs before it, newest first
    rate: int  # samples an hour
    obstacles: tuple[str, ...]  # why the last attempt could not close a former epoch


def summarise(site: Site, app: int) -> PlacementSummary:
    """Summarises an app's placement, or says why this process cannot compute it."""
    try:
        table = epochs.read(site.store, app)
    except PlacementUnfit as error:
        return PlacementSummary(str(error), (), 0, ())
    former = tuple(f"{e.number}: {describe_epoch(e)}, {e.state_name}" for e in reversed(table.epochs[:-1]))
    rate = moving.measure_rate(site.store, app, site.clock.now_ms())
    return PlacementSummary(
        describe_epoch(table.newest), former, rate, () if table.has_one_live_epoch else _obstacles(app)
    )


def describe_epoch(epoch: PlacementEpoch) -> str:
    """Describes one epoch."""
    return f"{placement.name_of(epoch.function)}, {epoch.spread} of {epoch.shards} shards"


def _obstacles(app: int) -> tuple[str, ...]:
    run = Run.objects.filter(kind=RunKind.REDISTRIBUTE, apps=[app]).first()
    _, separator, obstacles = run.message.partition(_NOT_CLOSED) if run else ("", "", "")
    return tuple(obstacles.split("\n")[1:]) if separator else ()


def start_move(app: int) -> None:
    """Continues an app's move in a process of its own."""
    start_process("redistribute", str(app))
