"""Processes killed while they work, on the real stack."""
