"""How far an instant selector looks back for a sample, and how often a subquery looks when it does not say.

Both are Prometheus' defaults, and its users rely on them.
"""

LOOKBACK_MS = 300_000
SUBQUERY_STEP_MS = 60_000
