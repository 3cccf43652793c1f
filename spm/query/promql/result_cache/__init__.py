"""Caches the answers of range queries by step, so that a refreshing dashboard computes only new steps."""
