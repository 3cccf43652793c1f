"""Bounds of light queries, which the event loop answers, and of what a process remembers for queries."""

LIGHT_S = 0.004  # of CPU; a query that last took less may be answered by the event loop, without a thread
LIGHT_SERIES_MAX, LIGHT_SAMPLES_MAX = 128, 5_000  # that such a query reads: half a day of one series; some 0.2 ms
LIGHT_CELLS_MAX = 1_536  # series x steps of such a query, as 12 hours of 128 series: 0.5 ms to evaluate and write
LIGHT_TAIL_ROWS_MAX = 300_000  # un-compacted samples of its app: one series may have them all, whose copy takes 2 ms
LIGHT_DAYS_MAX = 8  # whose manifests it looks at again after a write: some 3 us each
LIGHT_RETRACTIONS_MAX = 32  # of its app, which it looks at again after a write: 1 us each
LIGHT_TIMEOUT_S = 0.008  # after which it is left to a thread
LIGHT_TEXT_CHARS_MAX = 4_096  # of its parameters
LIGHT_KNOWN_MAX = 1_024  # queries of which a process remembers that they are light: at most 5 kB each
APPS_BYTES_MAX = 2_000_000_000  # of indexes and tails of all apps in a process: the largest app alone may hold as much
SELECTIONS_BYTES_MAX = 500_000  # of one app's selections of light queries that a process keeps: 55 of ten series
