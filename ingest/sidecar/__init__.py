"""The sidecar: it listens to lines of Graphite, OpenTSDB or StatsD on a user's machine, and pushes with a token.

Enter by ``python -m ingest.sidecar graphite|opentsdb|statsd``. None of them authenticates its senders, so it is used on
the user's own machine only. The agent's spool and push forward the points: nothing is lost while the server is away,
and a message that is sent twice counts once. A line passes ``listen``, ``intake``, the protocol's module, and the
spool. Never: like the agent it imports neither Django nor numpy.
"""
