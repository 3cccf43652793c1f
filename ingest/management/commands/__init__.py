"""Commands of ingest: dead."""
