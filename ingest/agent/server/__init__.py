"""Connections to the server: HTTP with TLS and proxy, and pushes over HTTP and AMQP."""
