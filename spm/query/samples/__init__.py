"""Samples as runs per series, selected from decoded pages and merged tails without a copy."""
