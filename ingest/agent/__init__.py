"""The agent: a program of its own that watches one machine and pushes what it sees.

``python -m ingest.agent`` is the door. It speaks line protocol over HTTP or AMQP and needs psutil alone (pika only for
amqp:// addresses). It imports neither Django nor numpy, so that it stays small on the machines it watches.
Way of a message: ``collect`` → ``lines`` → ``spool`` → ``push``; ``agent`` ties them together, ``run`` gives them
threads.
"""
