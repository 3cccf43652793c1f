"""The bounds of the stream of events, each with its reason."""

EVENT_ID_CHARS_MAX = 64  # of a client's id: a UUID, a commit, a build number with its project
KIND_CHARS_MAX = 32  # a word
KEY_CHARS_MAX = 200  # of the key by which consumers share: a host, a service, a series' fingerprint
TEXT_CHARS_MAX = 500  # what a mark on a chart says
LINK_CHARS_MAX = 500
BODY_BYTES_MAX = 4_096  # of the facts of an event: it points to things, it does not contain them
AUTHOR_CHARS_MAX = 150  # as names of accounts
COMMIT_S_MAX = 5.0  # from the request to the commit of an event; later ones are refused, so that nobody waits for them
RELAY_ROWS_MAX = 2_000  # positions given by one transaction, some 20 ms
RELAY_ROUNDS_MAX = 50  # of one call: 100,000 events; others wait for the next
PAGE_EVENTS_MAX = 500  # of one answer: at most 2 MB
KEEP_MS = 400 * 86_400_000  # as alerts: a year and a month, to compare with last year
KEPT_MAX = 1_000_000  # newest events of an organisation, some 500 MB: a flood does not fill the disk
PRUNE_ROWS_MAX = 5_000  # deleted of one organisation by one call
GROUPS_MAX = 100  # of an app
PARTITIONS_MAX = 64  # of a group: as many consumers can share it
PARTITIONS = 16  # of a group that does not say
LEASE_S = 30  # of a consumer that does not say: it fetches or commits more often
LEASE_S_MIN, LEASE_S_MAX = 5, 3_600
FETCH_SCAN_MAX = 2_000  # events looked at for one fetch: those of other consumers' keys are passed over
