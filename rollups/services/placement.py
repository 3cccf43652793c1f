"""In which shards an app lies, with its record: what the command, the admin and beat's daily round call (rule 22).

``redistribute`` opens another epoch where it is told to, then compacts, moves and closes until every former epoch is
closed or what is left must wait; ``widen`` does the same for apps that have grown, and goes on with those whose move
has begun. ``shown`` says how an app lies. All of it may be killed, and is gone on with the next time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollups.models import Kind, Run, State
from rollups.move import redistribute as moving
from rollups.run.driver import Driver, Progress
from rollups.services.runs import Site, launched, opened, roll, working, written_down
from spm import limits
from spm.errors import StrategyUnfit
from spm.store import epochs, placement
from spm.store.keys import CLOSED, Epoch

Watch = Callable[[Progress], None]
_NOT_CLOSED = "Not closed yet:"


@dataclass(frozen=True, slots=True)
class Wish:
    """What another epoch is to be like; ``None``: as the newest is."""

    spread: int | None = None
    shards: int | None = None
    strategy: str | None = None

    def opened(self, site: Site, app: int) -> None:
        """Open it, if anything is wished for. Raises ``Refused`` for what cannot be."""
        if self == Wish():
            return
        newest = epochs.read(site.store, app).newest
        epochs.open_epoch(
            site.store,
            app,
            strategy=self.strategy or placement.plain(newest.strategy),
            shards=newest.shards if self.shards is None else self.shards,
            spread=newest.spread if self.spread is None else self.spread,
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of an app's epochs."""

    units: int
    waits: tuple[str, ...]  # why an epoch is not closed yet


def redistribute(
    site: Site,
    app: int,
    wish: Wish = Wish(),
    *,
    executor: str = "local",
    wait_s: float = 0.0,
    watch: Watch = lambda _: None,
) -> Moved:
    """Lay an app out as wished from now on, move what it has, and close the epochs before, if that can be.

    What cannot be closed yet is closed by a later call, which without a wish goes on with what was begun.
    """
    wish.opened(site, app)
    units, waits = 0, tuple[str, ...]()
    for _ in range(limits.SPREAD_ROUNDS):
        # What is pending is compacted first, and then moved with the rest. A round sets former epochs closing: what
        # a writer still puts there meanwhile is compacted and moved by the next.
        roll(site, apps=[app], kind=Kind.FULL, executor=executor, watch=watch, wait_s=wait_s)
        done = _round(site, app, executor=executor, wait_s=wait_s, watch=watch)
        before, waits, units = waits, done.waits, units + done.units
        if not waits or (waits == before and not done.units):
            break
    return Moved(units, waits)


def _round(site: Site, app: int, *, executor: str, wait_s: float, watch: Watch) -> Moved:
    """Move once, try to close, and leave a run's row that says what came of it."""
    with working(site, kind=Kind.REDISTRIBUTE, executor=executor, apps=[app], watch=watch, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with opened(site, executor, work.at) as runner:
            report = moving.migrate(driver, runner, app, run=work.row.number)
        found = [moving.close_epoch(site.store, app, epoch.number, work.at) for epoch in _former(site, app)]
        waits = tuple(line for closing in found for line in closing.found)
        row = written_down(work.row, report, site.now())
        if waits:  # a row even of a round that moved nothing: it says what is in the way
            told = "\n".join([*([row.message] if row and row.message else []), _NOT_CLOSED, *waits])
            work.row.state, work.row.finished, work.row.message = State.DONE, site.now(), told[:10_000]
            work.row.save()
    return Moved(sum(day.units for day in report.days), waits)


def _former(site: Site, app: int) -> list[Epoch]:
    """The epochs before the newest that are not closed."""
    return [epoch for epoch in epochs.read(site.store, app).epochs[:-1] if epoch.state != CLOSED]


def widen(site: Site, *, apps: Sequence[int]) -> list[int]:
    """Spread apps that have grown, and go on with those that are being moved; their numbers."""
    touched = []
    for app in apps:
        rate = moving.rate(site.store, app, site.clock.now_ms())
        moving.widen(site.store, app, rate)
        if not epochs.read(site.store, app).settled:
            executor = "spark" if rate > limits.ROLL_LOCAL_SAMPLES_MAX else "local"
            redistribute(site, app, executor=executor, wait_s=limits.ROLL_WAIT_S)
            touched.append(app)
    return touched


# --- for people -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """How an app lies, in words."""

    newest: str
    former: tuple[str, ...]  # epochs before it, newest first
    rate: int  # samples an hour
    waits: tuple[str, ...]  # what was in the way of closing when that was last tried


def shown(site: Site, app: int) -> Shown:
    """How an app lies now, or why this process cannot know."""
    try:
        spread = epochs.read(site.store, app)
    except StrategyUnfit as error:
        return Shown(str(error), (), 0, ())
    former = tuple(f"{e.number}: {worded(e)}, {e.word}" for e in reversed(spread.epochs[:-1]))
    rate = moving.rate(site.store, app, site.clock.now_ms())
    return Shown(worded(spread.newest), former, rate, () if spread.settled else _waits(app))


def worded(epoch: Epoch) -> str:
    """One epoch."""
    return f"{placement.plain(epoch.strategy)}, {epoch.spread} of {epoch.shards} shards"


def _waits(app: int) -> tuple[str, ...]:
    run = Run.objects.filter(kind=Kind.REDISTRIBUTE, apps=[app]).first()
    _, found, told = run.message.partition(_NOT_CLOSED) if run else ("", "", "")
    return tuple(told.split("\n")[1:]) if found else ()


def begin(app: int) -> None:
    """Go on with an app's move in a process of its own."""
    launched("redistribute", str(app))
