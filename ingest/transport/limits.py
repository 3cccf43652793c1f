"""Bounds of what takes long or waits: samples of long ago, new series, messages set aside; each with its reason."""

PAST_PREFETCH = 64  # messages that a worker may hold: each may touch thousands of hours
PAST_BULK_PREFETCH = 2  # of large bodies
PAST_HOURS_MANY = 1_000  # hours of an app within a minute, from which on its messages wait apart: seconds of writing
PAST_LOAD_S = 60.0  # that minute
PAST_LOAD_APPS_MAX = 10_000  # apps that a process counts in it
PAST_IDLE_ROUNDS = 900  # of announcements, half an hour, after which such messages are stamped under another number
PAST_NUMBER_ROUNDS = 10_800  # six hours, after which they are in any case
PAST_AHEAD_MS = 1_000  # of stamps above the clock, from which on such messages are stamped as live ones are
PASS_ON_S = 5.0  # for the queue's confirm of messages that a worker passes on; what it does not confirm is written
WAIT_MS = 30_000  # before a message that cannot be written for now is tried again: what hinders it is mended by people
COMMIT_HERE_BYTES_MAX = 128_000  # of messages that the thread which brings them commits: some fifty of 100 values
APART_SERIES = 100  # new series of one body, from which on its app's bodies are accepted and written apart from others
APART_HOURS = 100  # the same for the span of a body with samples of long ago: each hour becomes some rows
APART_S = 2.0  # for so long after the last such body: registering a thousand series takes some ten milliseconds
