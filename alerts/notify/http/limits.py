"""The bounds of HTTP to receivers, each with its reason."""

STEP_S = 15  # of one step (connect, TLS, a read): a service that answers later is not well
EXCHANGE_S = 60  # of all requests of one hand-over; below ``telling.limits.HAND_OVER_MS``
ANSWER_BYTES_MAX = 64 * 1_024  # of an answer: its first words say what is wrong
BODY_BYTES_MAX = 256 * 1_024  # of a request: 50 lines in full are a tenth of it
URL_CHARS_MAX = 500  # what a receiver's row holds
