"""How far back an instant selector looks for a sample, and the default step of a subquery.

Both are Prometheus' defaults, and its users rely on them.
"""

LOOKBACK_MS = 300_000
SUBQUERY_STEP_MS = 60_000
