"""Settings of the agent: read from flags, environment and file, and pushed by the server."""
