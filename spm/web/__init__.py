"""The web process: the gunicorn worker, the WSGI entry point, the addresses, middleware for all requests."""
