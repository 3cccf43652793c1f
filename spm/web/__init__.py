"""The web process: gunicorn's worker, the ASGI entry point, HTTP, pools of threads, addresses, middleware."""
