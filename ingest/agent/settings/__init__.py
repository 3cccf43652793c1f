"""Settings of the agent: from flags, environment and file, and pushed by the server."""
