"""The bounds of judging, each with its reason. Bounds that other rooms use stand in ``spm/limits.py``."""

CHUNK_STEPS_MAX = 360  # of one operation: an hour of steps, so that a lane that catches up commits often
CHUNKS_PER_ROUND_MAX = 30  # of one lane: the others wait meanwhile
CATCH_UP_MAX_MS = 24 * 3_600_000  # older steps are skipped: nobody acts on what fired the day before yesterday
REWIND_AFTER_MS = 30_000  # a position so far ahead of now was written by a clock that was wrong
LEASE_MS = 60_000  # a judge that holds a lane longer counts as dead; above the longest query
HOLD_MS = 15 * 60_000  # how long missing data keeps an instance, if the rule does not say
HOLD_MAX_MS = 24 * 3_600_000  # no alert fires for ever on data that no longer comes
FORGET_MS = 24 * 3_600_000  # after which a missing series is gone for good
MISSING_FOR_MS = 5 * 60_000  # how long a series must be missing before that fires, if the rule does not say
ERROR_FOR_STEPS = 3  # a rule that fails at so many steps in a row is an alert of its own
OPERATIONS_KEEP_MS = 90 * 24 * 3_600_000  # as long as messages: what a verdict rested on can be looked up
WINDOW_MS = 5 * 60_000  # of a rate, a change, a forecast or a heartbeat, if the rule does not say
HORIZON_MS = 4 * 3_600_000  # how far a forecast looks ahead, if the rule does not say
FORECAST_POINTS_MIN = 10  # fewer give no line that anybody would trust
ANOMALY_WEEKS = 4  # past weeks that an anomaly is compared with, if the rule does not say
ANOMALY_WEEKS_MAX = 8  # more weeks are another season
