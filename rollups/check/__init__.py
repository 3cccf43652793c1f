"""Verifies the store: every row, aggregates recounted, commit records rebuilt."""
