"""The numbers of runs that this room alone reads: how long beat waits after work that failed."""

ROLL_TROUBLE_GAP_MS = 15 * 60_000  # for an app or day with trouble: a damaged row must not cost a run at every tick
ROLL_FAILURE_GAP_MS = 15 * 60_000  # after a run that failed as a whole: its cause is probably still there
