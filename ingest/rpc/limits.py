"""The bounds of the gRPC server, each with its reason; those of bodies are in ``spm/limits.py``."""

MESSAGE_BYTES_MAX = 4_194_304  # of one message as sent: gRPC's own default, to which exporters keep
METADATA_BYTES_MAX = 16_384  # of one call: a token and some names
CALLS_MAX = 1_024  # at work in one process; each may have sent 64 kB before it is read
CONNECTION_CALLS_MAX = 128  # of one connection: a proxy carries many exporters over one
CONNECTIONS_MAX = 4_000  # of one process: an exporter keeps its one open
READS_MAX = 16  # messages that arrive at once in one process: 67 MB; others wait
READ_S = 20  # until a message is read, all of it: exporters wait for 10 s
CLIENT_PING_S = 10  # between two pings of a client; who pings more often is cut off
