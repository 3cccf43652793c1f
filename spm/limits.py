"""Every bound of the system, with its reason. A test goes one over each.

Nothing here is tuned at run time: what an operator may change is a setting, and its ceiling stands here. Units are the
last word of a name.
"""

# --- time -------------------------------------------------------------------------------------------------------------
HOUR_MS = 3_600_000  # a slot; rollups, chunks and manifests count in it
DAY_SLOTS = 24
FUTURE_MS = 24 * HOUR_MS  # a sample later than this ahead of the server has a wrong clock or a wrong unit
TIME_MAX_MS = 253_402_300_799_000  # 9999-12-31: later instants overflow people's calendars

# --- messages and series ----------------------------------------------------------------------------------------------
METRIC_BYTES_MAX = 256  # names longer than this are data in the wrong place
LABELS_MAX = 64  # per series; Prometheus setups stay below 40
LABEL_NAME_BYTES_MAX = 256
LABEL_VALUE_BYTES_MAX = 2_048  # long enough for a URL; log lines do not belong in labels
SOURCE_BYTES_MAX = 255  # a host name's own limit
MESSAGE_SAMPLES_MAX = 1_000_000  # one body; more would hold the memory of several requests at once
SEQUENCE_MAX = 0xFFFF  # stamps of one process within one millisecond (16 bits in the key)

# --- store ------------------------------------------------------------------------------------------------------------
CELL_BYTES_MAX = 8_000_000  # HBase refuses cells over 10 MB (hbase.client.keyvalue.maxsize)
LMDB_MAP_BYTES = 1 << 40  # address space only: the file grows with what is written
LMDB_TRANSACTION_BYTES_MAX = 4_000_000  # pages are written in pieces, so that appends wait briefly for the one writer
PAGE_SAMPLES_MAX = 1 << 20  # of one chunk or timelines page: 8 MB decoded
GENERATIONS_MAX = 8  # of one unit before a run merges all of them: each costs a reader one row per page
HISTORY_MAX = 8  # former states of a unit a roll back can return to
SERIES_KNOWN_MAX = 4_000_000  # registered series one process remembers (16 bytes each)
STORE_TIMEOUT_S = 60  # HBase stalls ~10 s while a RegionServer moves; calls must outlast that

# --- writing ----------------------------------------------------------------------------------------------------------
COMMIT_LINGER_MS = 20  # how long a group commit waits for company when another has just been made
COMMIT_BYTES_MAX = 8_000_000  # of one group commit
COMMIT_QUEUE_BYTES_MAX = 64_000_000  # accepted bodies waiting for their commit; above it senders get 503

# --- reading ----------------------------------------------------------------------------------------------------------
TAIL_AGE_MS = 1_000  # how old the cached list of pending records may be (DESIGN rule 7)
PAGE_CACHE_BYTES = 64_000_000  # decoded chunk and timeline pages one process keeps
RESTARTS_MAX = 8  # of one query that meets moving manifests before it gives up
