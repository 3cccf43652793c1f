"""The difference between what a receiver believes of an episode and what is true now, as the line that closes it."""

from alerts.telling.decide.episodes import LastWord, Level, LineKind

_LINES = {
    (Level.NOTHING, Level.OPEN): LineKind.FIRING,
    (Level.NOTHING, Level.ENDED): LineKind.BRIEF,
    (Level.OPEN, Level.ENDED): LineKind.RESOLVED,
    (Level.OPEN, Level.VOID): LineKind.RETRACTED,
    (Level.ENDED, Level.OPEN): LineKind.REOPENED,
    (Level.ENDED, Level.VOID): LineKind.RETRACTED,
    (Level.VOID, Level.OPEN): LineKind.REINSTATED,
    (Level.VOID, Level.ENDED): LineKind.REINSTATED,
}
_AGAIN = {Level.OPEN: LineKind.FIRING, Level.ENDED: LineKind.RESOLVED, Level.VOID: LineKind.RETRACTED}


def difference(last: LastWord, level: Level) -> LineKind | None:
    """Return the line that brings the receiver from its last word to the level; None if it knows already.

    A last word that may not have arrived is said again, even if nothing has changed since.
    """
    if last.doubtful and last.level is level:
        return _AGAIN[level]
    return _LINES.get((last.level, level))


def after_delivery(frozen: Level, last: LastWord, *, arrived: bool, perhaps: bool) -> LastWord:
    """Return the receiver's last word after a notification that said ``frozen`` is done with.

    One that arrived is believed. One that surely did not arrive changes nothing. One that perhaps arrived is a word in
    doubt: it will be said again, and its end is told in any case.
    """
    if arrived:
        return LastWord(frozen)
    return LastWord(frozen, doubtful=True) if perhaps else last
