"""The bounds of the series that alerting writes, each with its reason."""

DELAY_MS = 10_000  # a step is recorded so long after its time: the samples of a period are on their way until then
ALERTS_MAX = 10_000  # of an app that ALERTS has a series for: more is an outage that nobody reads series of
LEASE_MS = 60_000  # a worker that holds an app longer counts as dead; above the longest query
SOURCE = "rules"  # the source of what recording rules write, as pages show it
ALERTS_SOURCE = "rules: alerts"  # of ALERTS, which follow judging: a judge that waited for them would wait for itself
CATCH_UP_MS = 3_600_000  # ALERTS of older steps are not written: they say what is, and charts of episodes what was
