"""Every number that decides: sizes, periods, numbers of tries and waiting times, each with its reason.

A test exceeds each bound by one. None changes at run time: what an operator may change is a setting, and this module
holds its ceiling. The unit is the last part of a name.
"""

# --- time -------------------------------------------------------------------------------------------------------------
HOUR_MS = 3_600_000  # an hour; rollups, chunks and manifests count in it
DAY_HOURS = 24  # days, months and manifests count in UTC
FUTURE_MS = 24 * HOUR_MS  # a sample later than this ahead of the server has a wrong clock or a wrong unit
TIME_MAX_MS = 253_402_300_799_000  # 9999-12-31: later instants overflow people's calendars

# --- messages and series ----------------------------------------------------------------------------------------------
METRIC_BYTES_MAX = 256  # names longer than this are data in the wrong place
LABELS_MAX = 64  # per series; Prometheus setups stay below 40
LABEL_NAME_BYTES_MAX = 256  # as long as a metric's name
LABEL_VALUE_BYTES_MAX = 2_048  # long enough for a URL; log lines do not belong in labels
SOURCE_BYTES_MAX = 255  # a host name's own limit
MESSAGE_SAMPLES_MAX = 1_000_000  # one body; more would hold the memory of several requests at once
APP_MAX = 0xFFFF_FFFF  # 32 bits in every key
SEQUENCE_MAX = 0xFFFF  # stamps of one process within one millisecond (16 bits in the key)

# --- acceptance -------------------------------------------------------------------------------------------------------
BODY_BYTES_MAX = 10_000_000  # of one request as sent, compressed or not
BODY_DECODED_BYTES_MAX = 20_000_000  # after decompression: a bomb must not cost more memory than this
GZIP_MEMBERS_MAX = 1_000  # of one body; each costs a new decompressor
PACKED_PIECES_MAX = 20_000  # blocks of zstd or chunks of snappy in one body: a writer that flushes every kilobyte
ZSTD_WINDOW_BYTES_MAX = 8_388_608  # which a reader must keep in memory: level 19 asks for as much, RFC 9659 allows it
BODIES_AT_ONCE_MAX = 32  # bodies one process works on; with the two above it bounds the memory of acceptance
LINE_BYTES_MAX = 200_000  # of one line: thousands of fields; a longer one has lost its line ends
MESSAGE_LINES_MAX = 250_000  # of line protocol; a body of nothing but bad lines must not hold a thread for long
MESSAGE_SERIES_BYTES_MAX = 64_000_000  # canonical text one message may add: short lines can name long series often
MESSAGE_SERIES_MAX = 250_000  # series of a binary body: as many as lines, since each may be new or wrong
SPELT_BYTES_MAX = 256_000_000  # of labels that references of one body spell out: a quarter of a second of copying
ATTRIBUTES_MAX = 512  # of one resource, scope, point or nested value that are read; far above LABELS_MAX
JSON_DEPTH_MAX = 32  # messages in messages: those of a request are eight, the rest is values in values
ATTRIBUTE_DEPTH_MAX = 8  # of values in values: what is deeper is left out
HISTOGRAM_BUCKETS_MAX = 10_000  # of one data point and sign: SDKs make 160 at most
EXPONENTIAL_SCALE_MAX = 2  # four buckets per power of two: finer ones are merged, 160 of them would be 160 series
METADATA_MESSAGE_MAX = 5_000  # descriptions of metrics taken from one body: Prometheus sends 2,000 at once
METADATA_APP_MAX = 10_000  # metrics of one app that are described; far more are names made of data
METADATA_KNOWN_MAX = 50_000  # descriptions one process remembers having written: half a kilobyte each
METADATA_HELP_CHARS_MAX = 1_000  # of a metric's help: a paragraph
JSON_COMMAS_MAX = 2_500_000  # of one JSON body: each may begin an item, and an item costs ~80 bytes while it is read
STRING_BYTES_MAX = 8_192  # how far a string field may run over line ends; beyond it the quote is taken for unclosed
REJECTIONS_MAX = 100  # listed in one answer; all are counted
REJECTION_EXAMPLE_CHARS_MAX = 120  # enough to find the line again
DEAD_LETTERS_PAGE = 50  # dead letters on one page: each is decoded to be shown
DEAD_LETTER_SAMPLES_SHOWN = 5  # of a dead letter: enough to recognise its sender
DEAD_LETTER_CHARS_SHOWN = 200  # of a body that is no message: enough to know its kind
DEAD_LETTERS_COUNTED_MAX = 1_000  # that wait, before a page says "1000 or more"
HEARTBEATS_PER_APP_MAX = 1_000  # each is three series and a row of the page
REJECTIONS_KEPT_MAX = 1_000  # per app, for its page of recent rejections
SERIES_CACHE_ITEMS_MAX = 500_000  # raw series texts one process remembers; ~100 bytes each beside their text
SERIES_CACHE_BYTES_MAX = 128_000_000  # text of the series one process remembers
MESSAGE_ID_CHARS_MAX = 128  # of a sender's own message id; longer is a body in the wrong place
SOURCE_SEEN_EVERY_MS = 30_000  # how often the last-seen time of a source is written
SOURCES_SEEN_MAX = 100_000  # sources whose last-seen time one process remembers
REJECTION_NOTES_MAX = 20  # rejections recorded per app, process and REJECTION_NOTES_PER_MS: the others are only counted
REJECTION_NOTES_PER_MS = 10_000  # so that a broken sender does not keep the database busy
REJECTION_REASONS_SHOWN = 50  # different ones of an app's kept rejections: reasons that hold numbers may be many
REJECTION_APPS_MAX = 10_000  # apps whose rate of rejections one process remembers
PUBLISH_TIMEOUT_S = 10  # how long a sender waits until its message is durable; then it gets 503
PUBLISH_STALL_S = 3.0  # without any confirmation; then senders get 503 at once, before their message is stamped
PUBLISH_LOOK_S = 0.2  # between two checks for such a stall while a sender waits, which then hears of it within 1 s
PUBLISH_ROOM_WAIT_S = 1.0  # for room for one more message, or for a connection that has just broken
PUBLISH_CLOSE_S = 5.0  # what is not confirmed gets this long when a process ends; web servers are killed after 10 s
PUBLISH_AGAIN_S = 1.0  # before a message is published again that the queue refused, or committed again
PUBLISH_AGAIN_MAX_S = 5.0  # this pause after many failures of the store
ACCEPT_APPS_MAX = (
    20_000  # apps whose messages one accepting process counts, 400 bytes each; above it the process takes a new number
)
ANNOUNCE_S = 2.0  # between two announcements of what was accepted: as-of answers and balances are that much behind
ANNOUNCE_APPS_AT_ONCE = 100  # of one round, the others wait for the next: an announcement costs the store 1 to 6 ms
ANNOUNCE_ALIVE_ROUNDS = 8  # until one is repeated that is not settled; a process silent for a minute counts as gone
ANNOUNCE_STOP_S = 3.0  # for the last announcement of a process that ends
RETRY_AFTER_S = 2  # the Retry-After of an answer 503

# --- quotas -----------------------------------------------------------------------------------------------------------
QUOTA_SERIES = 500_000  # of one app, unless staff say otherwise: its index takes a reader some 250 MB
QUOTA_SERIES_MAX = 20_000_000  # that staff may allow one app: SERIES_INDEX_BYTES_MAX ends before that
QUOTA_SAMPLES_PER_S = 1_000_000  # of one app on average, unless staff say otherwise: about what one core takes in
QUOTA_BURST_S = 10  # of that rate, all at once: an agent that comes back brings what its spool holds
QUOTA_PORTION_S = 1  # of that rate, taken by a process at once: so much it may be wrong, and so seldom it asks
QUOTA_SKEW_MS = 60_000  # beyond a burst: a shared moment further ahead is another machine's clock
QUOTA_SERIES_PORTION = 1_000  # rights to new series that a process takes at once, of a quota of 64,000 and more
QUOTA_RECOUNT_MS = 3_600_000  # between two counts of the dictionary of an app that is at its quota: a second each
QUOTA_CACHE_S = 10  # until a changed quota is known everywhere
QUOTA_APPS_MAX = 20_000  # apps whose quotas, rates and over-quota series one process remembers, some 200 bytes each
QUOTA_KNOWN_MAX = 4_000_000  # admitted series that one process remembers: 8 bytes each
QUOTA_SETS_MAX = 50_000  # tables of series that it finds again by their hash: 200 bytes each
QUOTA_REFUSED_MAX = 50_000  # refused series of an app that it does not ask the store about again: 60 bytes each
QUOTA_REFUSED_S = 30  # for so long
OVER_QUOTA_CACHE_S = 600  # an app that brought series over its quota is kept out of the common cache of names
OVER_QUOTA_CACHE_BYTES_MAX = 4_000_000  # of names, in the cache that such apps share: some 20 MB in all

# --- store ------------------------------------------------------------------------------------------------------------
CELL_BYTES_MAX = 8_000_000  # HBase refuses cells over 10 MB (hbase.client.keyvalue.maxsize)
LMDB_MAP_BYTES = 1 << 40  # address space only: the file grows with what is written
LMDB_TRANSACTION_BYTES_MAX = 4_000_000  # pages are written in pieces, so that appends wait briefly for the one writer
LOG_CELL_SAMPLES_MAX = 1 << 18  # of one cell of a block: 8 MB where nothing compresses
PAGE_SAMPLES_MAX = 800_000  # of one chunk or timelines page: 8 MB with ids where nothing compresses
COLUMN_VALUES_MAX = 1 << 25  # of one stored column: a damaged count must not take the machine's memory
GENERATIONS_MAX = 8  # of one HourShard before a run merges all of them: each costs a reader one row per page
RETRACTIONS_ACTIVE_MAX = 1_000  # of one app: every read checks each of them, and hours name those they leave out
HISTORY_MAX = 8  # former states of a HourShard that a roll back can return to
SERIES_KNOWN_MAX = 4_000_000  # registered series one process remembers (16 bytes each)
STORE_TIMEOUT_S = 60  # HBase stalls ~10 s while a RegionServer moves; calls must outlast that
HBASE_CALL_BYTES_MAX = 2_000_000  # per call: a call costs ~1 ms, and a gateway of 384 MB dies of 40 MB requests
HBASE_ROWS_PER_CALL = 1_000  # rows of a write, however small: the servers hold one handler for all of it
HBASE_READ_ROWS = 256  # rows of a read: more are no faster (measured), and all of them may be larger than those before
HBASE_READ_ROWS_LARGE = 64  # rows of a read of tables with values of megabytes
HBASE_BACK_OFF_S = (0.1, 0.5, 2.0)  # waits before a harmless call is made again; longer outages are the caller's
HBASE_IDLE_S = 30  # the gateway closes connections that were silent for 60 s
HBASE_PIPELINE = 64  # check-and-puts written before the first answer is read: 64 answers fit any socket buffer
HBASE_LANES = 16  # connections of one bulk registration: 4 make 3.8 k series a second, 16 make 5.2 k, 32 no more
HBASE_SCANS_AHEAD = 4  # ranges of which the first rows are read while the one before them is being used

# --- writing ----------------------------------------------------------------------------------------------------------
COMMIT_BYTES_MAX = 8_000_000  # of one group commit
MESSAGE_HOURS_MAX = 2_500  # hours one message may touch: each becomes a row that names all of the others
BATCH_HOURS_MAX = 1_000  # hours from which messages are no longer written as one batch, for the same reason
WRITER_APPS_MAX = 10_000  # apps whose placement table a writing process remembers: some 500 bytes each
DEAD_SAMPLES_MAX = 50_000  # of one message kept in its dead letter, which is one cell; all are counted
DEAD_BODY_BYTES_MAX = 7_000_000  # of a body kept in its dead letter, which is one cell; its full size is recorded
COMMIT_QUEUE_BYTES_MAX = 64_000_000  # accepted bodies waiting for their commit; above it senders get 503
BATCH_MESSAGES = 1_024  # a worker's batch: half of what its queues send, so that they go on while it is written
BATCH_SAMPLES = 200_000  # ~1 MB of block, as is good for HBase
BATCH_BYTES = 8_000_000  # of envelopes
BATCH_AGE_MS = 1_000  # of the oldest message: with a tail of a second, accepted samples are visible well within 5 s
BATCH_AGE_MAX_MS = 2_500  # of it while batches stay nearly empty: many idle workers write fewer and larger blocks
CONSUME_UNACKED_MAX = (
    2_048  # unacknowledged messages of a worker's partition queues together; half of them make a batch
)
CONSUME_PREFETCH_MIN = 16  # of one of them, however many a worker has
CONSUME_PREFETCH_BULK = 4  # of the queue of large bodies: four of 24 MB
CONSUME_RETRY_S = 900  # a batch is given back before RabbitMQ takes it away (after 30 minutes)
CONSUME_STOP_S = 10  # to write the messages at hand when a worker ends; the others are given back
CONSUME_BACK_OFF_S = 30  # longest wait between two tries to write a batch
CONSUME_SUSPECT_TRIES = 3  # unsettled deliveries of a message, after which it may be one that ends its worker
SANDBOX_CPU_S = 30  # of a processor, for such a message in a process of its own: the largest takes two
SANDBOX_WAIT_S = (
    300  # by the clock, for the same, and for the process to begin: a busy machine is no fault of a message
)
SANDBOX_BYTES_MAX = 4_000_000_000  # of memory, for the same; the largest takes one
CONSUME_RENEW_S = 5  # before messages come again after an unexpected failure: each time counts as a delivery
AMQP_PARTITIONS = 16  # work queues, unless the address says otherwise
AMQP_PARTITIONS_MAX = 256  # each is a quorum queue with a log of its own
AMQP_PARTITION_BODY_BYTES_MAX = (
    262_144  # x CONSUME_UNACKED_MAX: half a gigabyte is the most a worker can be made to hold
)
AMQP_BODY_BYTES_MAX = 64_000_000  # an envelope of MESSAGE_SAMPLES_MAX samples; RabbitMQ itself refuses 128 MiB
AMQP_QUEUE_BYTES_MAX = 4_000_000_000  # of one queue: a full one refuses, and senders keep their messages
AMQP_DELIVERY_LIMIT = (
    50  # deliveries of one message before it is a dead letter: half a day of outage at 15 minutes each
)
AMQP_DEAD_DELIVERY_LIMIT = 1_000_000_000  # of a dead letter: none, said aloud, as RabbitMQ 4 drops one after 20 unasked
AMQP_UNCONFIRMED_MAX = 500  # messages under way; more add nothing (measured), but cost memory
AMQP_UNCONFIRMED_BYTES_MAX = 64_000_000  # of messages under way in memory, for large ones
AMQP_CONNECT_GRACE_S = 1.0  # how long a message waits for a broken connection to come back
AMQP_BACK_OFF_S = 5.0  # longest wait between two tries to connect
AMQP_CLOSE_S = 5  # a connection that does not close in this time is dropped; the broker notices by heartbeats
AMQP_LOOK_S = 1.0  # between two looks at which workers are there: how long a dead worker's queues wait
AMQP_SEATS_AHEAD = 2  # seats above the highest taken one that a look asks about: each costs a worker 0.1 ms of CPU
AMQP_LOOKS_SETTLED = 5  # that find the same share before a queue that stays gets another prefetch: a restart is quicker
AMQP_LOOKS_AT_ALL = 10  # every so many looks ask about all seats
AMQP_CALM_WORKERS = 2  # that consume while there is little to do: one that hangs delays half of it, not all
AMQP_CALL_BUSY = 0.5  # part of its time in which a worker has something to do, from which on all others help
AMQP_CALL_BEHIND = 128  # messages that wait in one of its queues, from which on all others help
AMQP_CALM_S = 60  # how long there must be little to do before they leave it to the few again: queues seldom move
AMQP_DEPTHS_S = 5.0  # between two looks at how much waits in the queues, for the worker's own metrics
AMQP_QUEUE_ANSWER_S = 20  # a queue that is elected anew answers in a second
AMQP_HEARTBEAT_S = 20  # a dead peer is noticed after two of them

# --- watermarks -------------------------------------------------------------------------------------------------------
ANNOUNCEMENTS_MAX = 32  # of one process and app above its watermark: 50 bytes each, thinned out above this number
WATERMARK_DEAD_STAMPS_MAX = 2_000  # in the watermark's cell, which is written at every move; more go to pages
STAMPS_PER_CELL = 50_000  # of one page of dead stamps or one adoption record: some 150 kB
COMMIT_CELL_CACHE_BYTES = (
    32_000_000  # of decoded commit records and ledger rows that the watermark keeper reads again and again
)
PROCESS_GONE_S = (
    330  # an accepting process that announces nothing for so long counts as gone: clocks may differ by 5 min
)
ADOPTIONS_MAX = 1_000  # records of one process: so many mean a clock that is far behind, not a process that is gone
KEEP_EVERY_S = 10  # between two rounds over the watermarks of an app with recent messages
KEEP_NEWS_MS = 10 * 60_000  # after a source's last message its app is in every round
KEEP_ROUND = 180  # an app without recent messages is in one of so many rounds: every half hour
KEEP_BUDGET_S = 8.0  # of one round over the apps; the next round begins where it ended
KEEP_SLACK_MS = 2 * 60_000  # a batch is filed under its oldest message, which may be this much older than the others
KEEP_STUCK_MS = 30_000  # for stamps that are not settled after this long, older rows are read
KEEP_STUCK_BACK_MS = 6 * 3_600_000  # back at most, and from the watermark on: announcements may have failed for hours
KEEP_NEAR_MS = 15 * 60_000  # ledger rows that every round reads; the older a row, the more seldom it is read
KEEP_ROWS_MAX = 100_000  # ledger rows of one round: some 100 MB while they are joined; another round reads older ones
KEEP_FAR_AT_ONCE = 2  # processes whose old ledger rows are read in one round over an app

# --- balance ----------------------------------------------------------------------------------------------------------
BALANCE_SLACK_MS = 10 * 60_000  # rows are keyed by their batch's oldest message: a batch may be that much older
BALANCE_LOOK_BACK_MS = 2 * 86_400_000  # of rows read for a balance; above a watermark, older ones count as waiting
BALANCE_GONE_MS = 6 * HOUR_MS  # after which only the watermarks of a process that is gone are read
BALANCE_HOURS_MAX = 168  # of one request for hours: a week; the balance since the beginning has no such bound
BALANCE_STRETCH_HOURS = 2  # read at once: bounds the memory of a request, whatever its range
BALANCE_HOURS_CACHED = 4_000  # summed hours one process remembers, of all apps
BALANCE_ROWS_CACHED = 500_000  # rows of such hours, one per hour and source: some 150 bytes each
BALANCE_READERS = 2  # requests for hours at once in one process: each holds BALANCE_STRETCH_HOURS in memory
BALANCE_RECENT_MS = 30_000  # how old the sums of an hour may be that is not final yet
BALANCE_RUNS_MAX = 50_000  # unbroken runs of numbers in an hour, one per agent when all is well: 150 bytes each
BALANCE_GAPS_SHOWN = 500  # gaps named at once; all are counted
BALANCE_SOURCES_SHOWN = 200  # sources of a page, those in trouble first; the download has all
OWN_METRICS_EVERY_S = 30  # how often a process sends its metrics to the product's own app, unless a setting says so
OWN_METRICS_EVERY_S_MAX = 3_600  # what that setting may say at most: one sample an hour is no metric
OWN_PROCESSES_MAX = 64  # of one kind on one machine that have a name each
SITE_METRICS_AGE_S = 15.0  # how old the metrics of the whole site may be that a scraper gets
SITE_METRICS_APPS_MAX = 200  # apps with figures of their own there: more series than that are nobody's chart
SITE_METRICS_PERIODS_MAX = 50  # periods of sources that are distinguished there; others are overdue after 60 s
SITE_METRICS_DEAD_LETTERS_MAX = 100  # dead letters counted per app for them; of more the metric says 100

# --- reading ----------------------------------------------------------------------------------------------------------
LABEL_MASKS_MAX = 128  # regular expressions of one label whose answers a process remembers
LABEL_MASK_BYTES_MAX = 4_000_000  # and the bytes of them, one for each value
TAIL_AGE_MS = 1_000  # how old the cached list of pending records may be (PROTOCOL 7)
TAIL_SAMPLES_MAX = 30_000_000  # pending samples of one app in a reading process: 28 bytes each
SERIES_INDEX_BYTES_MAX = 1_000_000_000  # of one app in a reading process: some one and a half million series
PAGE_CACHE_BYTES = 256_000_000  # decoded pages one process keeps: three days of 1,000 series every 10 s
RESTARTS_MAX = 8  # of one query whose manifests keep changing, before it gives up

# --- queries ----------------------------------------------------------------------------------------------------------
QUERY_TEXT_CHARS_MAX = 4_096  # the parser's time and stack grow faster than the text
QUERY_OPERATORS_MAX = 200  # operators outside braces: a chain of them is as deep as it is long; 5,000 end the process
QUERY_DEPTH_MAX = 64  # nested brackets; 5,000 take the parser seconds
QUERY_PLAN_DEPTH_MAX = 300  # levels of a plan, walked by recursion: above what operators and brackets can make
QUERY_POINTS_MAX = 11_000  # steps after the first of one range query, as in Prometheus: more than any screen has pixels
QUERY_SUBQUERY_STEPS_MAX = 1_000_000  # of one subquery: a year at 30 s; 9 bytes for each and series
QUERY_SERIES_MAX = 100_000  # of one selector: their labels are dicts of some hundred bytes
QUERY_SAMPLES_MAX = 50_000_000  # read by one query: 16 bytes each
QUERY_CELLS_MAX = 20_000_000  # series x steps of one intermediate result: 9 bytes each
QUERY_BYTES_MAX = 512_000_000  # one query holds at once, by the sizes of its columns: four of them fit a small machine
QUERY_SHOWN_MAX = 5_000_000  # points of one answer: some 150 MB of JSON; Grafana draws a hundredth of that
QUERY_PARALLEL_MAX = 4  # queries of one organisation that run at once on a machine; a web process has 16 threads
QUERY_WAITING_MAX = 8  # more of them that wait; with those running they leave threads for everybody else
QUERY_WAIT_S = 10.0  # for admission; then the query is refused: nobody waits longer for a page
STREAMS_PARALLEL_MAX = 4  # exports and remote reads of one organisation in one web process: each has a thread of it
STREAM_SLICE_S = 1.0  # that a stream computes at a stretch: then it gives up its slot while its output is sent
STREAM_SLICE_BYTES = 4_000_000  # of that output, in memory while it is sent: one portion of an export may be larger
QUERY_CLIENT_CHECK_S = 0.1  # between two checks whether a client is still connected
NAMES_SHOWN_MAX = 200_000  # series or names of one answer: some 50 MB of JSON; Grafana asks for 40,000
EXPORT_SERIES_AT_ONCE = 1_000  # of an export: an hour of them at 10 s is 360,000 samples
EXPORT_STRETCH_SAMPLES = 500_000  # of an export read at once: 16 bytes each, and some 30 as text
EXPORT_STRETCH_HOURS_MAX = 24 * 31  # of it, where samples are few: a month of manifests
EXPORT_LABELS_MAX = 200  # columns of a table: JSON lines need none
EXPORT_TIMEOUT_S = 3_600  # a reader that takes longer holds a thread of the web server for nothing
IMPORT_PIECE_BYTES = 4_000_000  # of a file, parsed and pushed as messages before the next is read
IMPORT_LINE_BYTES_MAX = 16_000_000  # one line of JSON: a month of one series
IMPORT_BYTES_MAX = 2_000_000_000  # of one request as sent; larger files are cut
IMPORT_DECODED_BYTES_MAX = 20_000_000_000  # after decompression, which is done piece by piece
IMPORT_PARQUET_BYTES_MAX = 500_000_000  # spooled to disk, because its index stands at its end
IMPORT_GROUP_BYTES_MAX = 256_000_000  # of one row group of Parquet, decoded
IMPORT_SAMPLES_AT_ONCE = 250_000  # of one message made from a file
IMPORT_HOURS_AT_ONCE = 500  # hours of one such message: each becomes a row
EXPLAINED_HOUR_SHARDS_MAX = 200  # hours of shards, or retractions, that one explanation names: the newest
EXPLAINED_HOURS = 3  # the last ones of an answer, of which it says who has sent for them
READ_TOP_MAX = 10_000  # of each list of status/tsdb: people read them
REMOTE_READ_QUERIES_MAX = 100  # of one remote-read request; Prometheus sends one
READ_CHUNK_SAMPLES = 120  # of a chunk of streamed remote read, as Prometheus cuts its own
READ_FRAME_BYTES = 1_000_000  # of a frame of streamed remote read, about; readers refuse frames of more than 50 MB
REMOTE_READ_TIMEOUT_S = 120  # of one remote read: Prometheus gives a query as long, and some of it is its own
READ_FORM_BYTES_MAX = 1_000_000  # of a form or a remote-read request: selectors, no data
QUERY_BUCKETS_MAX = 20_000_000  # of the sketches that one query's percentiles are made of: 12 bytes each
QUERY_QUANTILES_MAX = 10  # percentiles that one call asks for
QUERY_TIMEOUT_S = 30  # looked at between the parts of a query
QUERY_DAYS_MAX = 3_660  # that hold data and that one query reads: ten years of manifests
SAMPLE_RUNS_IDLE_BYTES_MAX = (
    64_000_000  # unused bytes of pages that a query keeps for a few series before it copies these
)
RESULTS_BYTES_MAX = 64_000_000  # of answers one process keeps for dashboards that refresh: 200 panels of 100 series
RESULTS_SAMPLES_MIN = 50_000  # read for an answer that is cached: a smaller one is computed as quickly as looked up
QUERY_APPS_MAX = 256  # apps whose index and tail one process keeps
QUERY_PLANS_MAX = 512  # texts whose tree, plan or matchers one process caches

# --- agent ------------------------------------------------------------------------------------------------------------
AGENT_MESSAGE_BYTES_MAX = 1_000_000  # of one collection, compressed; a large host makes some 10 kB
AGENT_MEMORY_MESSAGES_MAX = 60  # that wait in memory while the disk fails: ten minutes of messages
AGENT_DEVICES_MAX = 200  # disks or interfaces reported; container hosts have thousands that come and go
AGENT_TIMEOUT_S = 20  # of one push; above the server's own worst case for a durable answer under load
AGENT_STOP_S = 5  # what a running push gets at the end; its message is in the spool anyway
AGENT_ANSWER_BYTES_MAX = 65_536  # of a server's answer that is read
AGENT_BACKOFF_BASE_S = 1  # doubled after each further failure
AGENT_BACKOFF_MAX_S = 60  # a server that is back is noticed within a minute, and asked for no longer pause than this
AGENT_BACKOFF_JITTER = 0.3  # so that a fleet does not come back as one
AGENT_TOKEN_CHARS_MAX = 512  # ours have some 60
AGENT_BODY_BYTES_MAX = 900_000  # of lines in one message; a larger collection becomes several messages
AGENT_COLLECT_S = (
    4.0  # a collection waits this long for its collectors, or half a period; later points go with the next
)
AGENT_POINTS_MAX = 5_000  # of one collector per collection: a larger exporter is a mistake, and costs the host
AGENT_TARGETS_MAX = 50  # collectors of services on one host: each has a thread
AGENT_FETCH_S = 4.0  # for the whole answer of a service: a slow one is late, not absent
AGENT_FETCH_BYTES_MAX = 4_000_000  # of it: more would not fit into the agent's 40 MB once it is parsed
AGENT_REST_AFTER = 3  # failures in a row, after which a collector runs less and less often
AGENT_REST_MAX = 30  # collections that a failing collector skips: five minutes
AGENT_PROGRAMS_MAX = 10  # programs reported, by processor time and by memory: the others are in the sums
AGENT_CONTAINERS_MAX = 200  # containers reported: more are a node with a monitoring of its own
AGENT_ROWS_MAX = 200  # queues, databases or cores reported of one service
AGENT_COMMAND_S = 10.0  # of one custom command, unless it says otherwise
AGENT_COMMAND_S_MAX = 300.0  # what it may say at most
AGENT_COMMAND_BYTES_MAX = 1_000_000  # of its output
AGENT_CONFIG_BYTES_MAX = 100_000  # of the configuration file
AGENT_DISCOVER_S = 600  # between two searches for services on this host: each opens every process
AGENT_PROBE_S = 1.5  # for a probe's answer
AGENT_HEARTBEAT_S = 30  # between two heartbeats; a host is overdue after 60
AGENT_LABELS_MAX = 20  # of an agent: each is a label of every series it has
AGENT_SETTINGS_BYTES_MAX = 10_000  # of pushed settings: a period, some tags, some names
AGENT_MATCHES_MAX = 200  # entries of pushed settings per app
AGENTS_PER_APP_MAX = 20_000  # that may register
AGENTS_SHOWN = 500  # on their page, those in trouble first; the interface has all
AGENT_OFFSET_BAD_MS = 5_000  # of its clock, from which an agent's page and doctor warn
AGENT_TWIN_S = 300  # how long two agents of one name are reported after both sent a heartbeat: ten heartbeats
AGENT_TWIN_SLACK_S = 5  # a process that began at most so long before its predecessor's last heartbeat is its successor
COMPLETENESS_SOURCES_MAX = 2_000  # of one app that have system series about their completeness

# --- side-car ---------------------------------------------------------------------------------------------------------
SIDECAR_LINE_CHARS_MAX = 8_192  # of one line of Graphite or StatsD; longer has lost its line ends
SIDECAR_POINTS_MAX = (
    100_000  # of Graphite that wait for the next collection: 50 MB; points beyond are counted and dropped
)
SIDECAR_CONNECTIONS_MAX = 256  # TCP connections at once, a thread each
SIDECAR_IDLE_S = 300  # until a silent connection is closed
SIDECAR_UDP_BUFFER_BYTES = 4_000_000  # of the system, asked for: some seconds of a busy application
STATSD_SERIES_MAX = 50_000  # of one side-car: some 400 bytes each
STATSD_VALUES_MAX = 200_000  # of timers, and members of sets, stored between two collections, of all series together
STATSD_IDLE_S = 3_600  # without a line, after which a series is removed

# --- starting ---------------------------------------------------------------------------------------------------------
START_FREE_BYTES_MIN = 200_000_000  # of the data folder's disk: less is gone within hours of use
RESTART_DELAY_S_MAX = 30  # between two tries to start a process that keeps ending
WEB_KEEP_ALIVE_WAIT_MS = 5  # a thread's wait for the next request of a connection: what clients need between two
WEB_STALL_S = 60  # without a byte of an answer taken: nobody reads it, and it occupies a thread
WEB_KEEP_ALIVE_SPIN_MS = 0.5  # of that wait without sleeping, while no other request is served: most come within it
HEALTHY_AFTER_S = 60  # a process that ran this long is restarted at once
STOP_GRACE_S = 15  # for a process to finish what it does before it is killed
READY_TIMEOUT_S = 120  # for the first answer of the web server; numpy and numba load slowly on a cold disk
LOG_BYTES_MAX = 5_000_000  # of one process's log before it becomes the older one; two are kept

# --- rollups ----------------------------------------------------------------------------------------------------------
ROLL_PENDING_ROWS = 200  # of one shard and app: readers list them all, and 300 take HBase 15 ms
ROLL_PENDING_SAMPLES = 1_000_000  # a reader's tail then takes about 30 MB
ROLL_PENDING_AGE_MS = 10 * 60_000  # of the oldest: blocks of single messages take several times the bytes of chunks
ROLL_GRACE_MS = 2 * 60_000  # after an hour's end, for what is under way; later data is merged by the next run
ROLL_SPARK_GAP_MS = 10 * 60_000  # between two Spark runs that beat starts: stragglers must not keep a JVM busy
ROLL_LOCAL_SAMPLES_MAX = 5_000_000  # a minor run inside a Celery worker: some seconds and 400 MB at most
ROLL_TROUBLE_GAP_MS = 15 * 60_000  # after a run with trouble: a damaged row must not cost a run at every tick
ROLL_WAIT_S = 900  # that a command waits for a run which beat has started
ROLL_WAVE_SAMPLES = 50_000_000  # merged before the next publish: bounds what a crash wastes and the driver's memory
ROLL_HOUR_SHARD_SAMPLES = 500_000  # assumed for a HourShard whose size a plan does not know: a wave then has a hundred
ROLL_SWEEP_MS = DAY_HOURS * HOUR_MS  # a full run plans every day of an app this often: for what crashes left behind
SPREAD_HOUR_SHARD_SAMPLES = 10_000_000  # of one HourShard, from which on an app is spread wider: 300 MB in its task
SPREAD_ROUNDS = 3  # of moving and closing in one go: the second takes what was under way in the first, more is rare
AGENDA_DAYS_MAX = 4_000  # days an app's agenda names; with more, the next run plans all days
ROLLUP_ROWS_MAX = 1 << 19  # (series, hour) entries of one page of hours or days: 4 MB an aggregate, decoded
ROLL_GROUPS_PER_CORE = 4  # tasks per core: fewer leave cores idle at the end, more cost a start each
ROLL_CELLS_MAX = 100_000  # pending cells of one shard and app that one run takes: about 1 kB each
PURGE_HISTORY = 2  # former states of a HourShard that a purge leaves, so that its last runs can be rolled back
PURGE_EVERY_MS = DAY_HOURS * HOUR_MS  # beat's own purges list every key of an app: once a day is cheap
PURGE_BYTES_PER_CALL = 32_000_000  # of rows weighed or deleted at once: a page may have 8 MB
PURGE_PAGES_MAX = 200_000  # of runs that died, found by one purge: 200 bytes each in memory; the next finds the rest
PURGE_ROWS_WEIGHED = 64  # read at once to be counted: half a gigabyte if each were as large as can be
SEAL_TRIES = 8  # of a check-and-put against runs and appends
PURGE_ROWS_PER_CALL = 1_000  # deleted at once: appends wait for the one writer of LMDB meanwhile
FSCK_DIFFERENCES_MAX = 1_000  # reported by one comparison on Spark: more add nothing
FSCK_BLOCK_AGE_MS = 15 * 60_000  # of a block without a commit record: a younger one may belong to a batch being written
ROLL_RUNS_KEPT = 10_000  # rows of the list of runs; the store keeps its own history
RETRACT_PREVIEW_SAMPLES_MAX = 20_000_000  # versions one preview reads, some seconds of work; above it a lower bound
RETRACT_PREVIEW_HOUR_SHARDS_MAX = 2_000  # that one preview opens, 5 ms each: somebody waits for the page
RETRACT_REASON_CHARS_MAX = 500  # a sentence for a reader of the chart next year, not a report
ERASE_HOURS_IN_REQUEST_MAX = 500  # of a retraction erased within a request, some 20 ms each; longer ones by command
PUBLISH_TRIES_MAX = 3  # when others keep publishing a day, the next run does it

# --- retention --------------------------------------------------------------------------------------------------------
RETENTION_RAW_DAYS = 90  # by default; 1,000 series every 10 s are 300 MB then, and a quarter can be corrected or undone
RETENTION_HOUR_DAYS = 400  # by default: a year and a month, to compare with last year; days are kept for ever
RETENTION_DAYS_MAX = 36_500  # a century; longer is "for ever", which has a field value of its own
ERASE_AFTER_MS = 15 * 60_000  # from an app's deletion to that of its rows: accepted messages are stored by then
CORRECTION_SOURCES_MAX = 20  # names kept with one corrected hour: enough to know whom to ask
CORRECTIONS_KEPT = 5_000  # listed per app: half a year of an app whose every hour is corrected

# --- accounts ---------------------------------------------------------------------------------------------------------
TOKEN_CACHE_S = 5  # how long a process may act on a token that was revoked elsewhere
TOKEN_CACHE_ITEMS_MAX = 50_000  # tokens, good and bad, one process remembers: some 200 bytes each
TOKEN_USED_EVERY_MS = (
    60_000  # how often the last use of a token is written: a write per request would cost more than it
)
SOURCE_OVERDUE_AFTER_MS = 60_000  # six periods of an agent
SOURCE_GONE_AFTER_MS = 900_000  # a reboot is over by then
SOURCE_OVERDUE_PERIODS = 3  # of one that announces its period: overdue after so many, if that is longer than the above
SOURCE_GONE_PERIODS = 15  # of one that announces its period: gone after so many
SOURCE_PERIOD_MAX_MS = 31 * 86_400_000  # of an announced period: a monthly job

# --- alerts -----------------------------------------------------------------------------------------------------------
RULE_PERIOD_MS = 10_000  # rules are evaluated on this grid: the period of agents
RULE_CLAIM_MS = 60_000  # an evaluation that takes longer counts as dead; above the longest query
RULES_PER_APP_MAX = 500  # one query each per period
RULE_NAME_CHARS_MAX = 120  # a mail's subject holds it beside the series
RULE_EXPR_CHARS_MAX = 4_096  # as QUERY_TEXT_CHARS_MAX
RULE_SERIES_MAX = 10_000  # in the answer of a rule's expression
RULE_ACTIVE_MAX = 1_000  # alerts of one rule at a time: beyond it nobody reads them one by one
RULE_DURATION_MAX_MS = 7 * 86_400_000  # of "for" and "keep firing for": what takes longer is no alert
RULE_RECEIVERS_MAX = 20  # more people are a mailing list
PREVIEW_ROWS_MAX = 20  # series shown beside a rule's form
ALERT_RESOLVED_KEEP_MS = 7 * 86_400_000  # shown as "resolved" on the rule's page for a week
ALERT_EVENTS_KEEP_MS = 400 * 86_400_000  # a year and a month, to compare with last year
OUTBOX_KEEP_MS = 90 * 86_400_000  # long enough to ask who was notified in the last quarter
OUTBOX_CLAIM_MS = 120_000  # a delivery that takes longer counts as dead; above the mail server's time-out
OUTBOX_ROUND_MAX = 100  # messages of one round, so that rounds stay short
OUTBOX_ATTEMPTS_MAX = 12  # some six hours with the pauses below
OUTBOX_PAUSE_MS = 10_000  # after the first failure; doubled after each further one
OUTBOX_PAUSE_MAX_MS = 3_600_000  # a mail server that is back is noticed within the hour
OUTBOX_JITTER = 0.2  # so that messages that failed together are not sent again together
OUTBOX_ERROR_CHARS_MAX = 500  # of a mail server's answer that is kept
MAIL_SUBJECT_CHARS_MAX = 200  # what readers show of a subject, and more
MAIL_LINE_CHARS_MAX = 800  # SMTP ends lines at 998
PRUNE_ROWS_MAX = 500  # deleted at one tick

# --- pages ------------------------------------------------------------------------------------------------------------
CHART_SERIES_MAX = 100  # lines of one chart: people cannot distinguish more
PICKER_VALUES_MAX = 500  # choices for one label; more are typed, not picked
