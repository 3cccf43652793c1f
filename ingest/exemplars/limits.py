"""The bounds of exemplars, each with its reason."""

EXEMPLAR_LABEL_CHARS_MAX = 128  # of names and values of one: OpenMetrics' bound, to which Prometheus keeps, too
EXEMPLARS_MESSAGE_MAX = 2_000  # taken from one body: as many items as Prometheus sends at once
EXEMPLARS_WAITING_APP_MAX = 2_000  # of one app that wait for the database, some 500 bytes each
EXEMPLARS_APP_MAX = 50_000  # the newest of an app, some 25 MB: half as many as Prometheus has memory for in all
EXEMPLARS_SPARE = 500  # that a process adds to an app before it deletes what is over: that reads all of its index
EXEMPLARS_SHOWN_MAX = 10_000  # in one answer, the newest: some 2 MB, and far more than a chart can show
EXEMPLARS_READ_AT_ONCE = 2_000  # rows between two looks at the deadline of a query
EXEMPLAR_APPS_COUNTED_MAX = 10_000  # apps of which a process counts what it added: an entry is some 100 bytes
