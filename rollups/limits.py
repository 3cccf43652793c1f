"""The numbers that this room alone reads: how long beat waits after work that failed, and how much is listed."""

ROLL_TROUBLE_GAP_MS = 15 * 60_000  # for an app or day with trouble: a damaged row must not cost a run at every tick
ROLL_FAILURE_GAP_MS = 15 * 60_000  # after a run that failed as a whole: its cause is probably still there
ROLL_RUNS_KEPT = 10_000  # rows of the list of runs; the store keeps its own history
CORRECTION_SOURCES_MAX = 20  # names kept with one corrected hour: enough to know whom to ask
CORRECTIONS_KEPT = 5_000  # listed per app: half a year of an app whose every hour is corrected
TOMBSTONE_KEPT_MS = 400 * 86_400_000  # of a deleted app, whose late messages are deleted, too: a year and a month
LEASE_MS = 60_000  # of the right to run: a machine that died holds the others up for so long
LEASE_RENEW_S = 10.0  # between two renewals, so that clocks may differ by most of a minute, and calls may fail
LEASE_SKEW_MS = 600_000  # beyond that: a lease that ends even later was written by a clock that was wrong
PENDING_REMEMBERED_MAX = 1_000_000  # records and their cells that a worker remembers between two looks: some 60 MB
