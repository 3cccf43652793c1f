"""Rules that read ``ALERTS``."""
