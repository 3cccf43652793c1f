"""The agent: a separate program that collects metrics of one machine and pushes them to the server.

Enter by ``python -m ingest.agent``. It sends line protocol over HTTP or AMQP. It needs only psutil, and pika for
amqp:// addresses. A message passes ``collect``, ``lines``, ``spool`` and ``server.push``; ``agent`` connects these, and
``threads`` runs them. Never: it imports neither Django nor numpy, so that it stays small on the machines it watches.
"""
