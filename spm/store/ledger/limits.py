"""Bounds of folding the ledger, each with its reason."""

KEPT_MS = 86_400_000  # after which an hour is folded to its sums: until then a run or a person may look at its rows
HOURS_AT_ONCE = 50  # of an app in one round, twice what a day brings: an old store takes as many days as it is old
FOLDED_BYTES_MAX = 8_000_000  # of a folded hour, in one cell: some 200,000 sources
