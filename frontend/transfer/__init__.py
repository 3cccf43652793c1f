"""Exports and imports samples in formats that other programs read."""
