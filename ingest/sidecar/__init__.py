"""Listeners for the user's side: Graphite's plain text and StatsD in, our line protocol with a token out.

``python -m ingest.sidecar graphite|statsd`` is the door. Neither protocol knows who speaks, so it is spoken on the
user's own machine only, and what comes is sent on by the agent's spool and push: nothing is lost while the server is
away, and what is sent again counts once. Like the agent it imports neither Django nor numpy.
Way of a line: ``listen`` → ``graphite`` or ``statsd`` → the spool.
"""
