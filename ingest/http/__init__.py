"""HTTP endpoints of ingest: bodies read under limits, parsed, accepted, answered once durable."""
