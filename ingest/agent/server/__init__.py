"""The way to the server: HTTP with TLS and proxy, and the pushes over HTTP and AMQP."""
