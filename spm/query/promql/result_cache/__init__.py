"""Answers of range queries kept by step, so that a dashboard that refreshes computes only new steps."""
