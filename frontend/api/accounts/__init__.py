"""Organisations, their people, and tokens, for programs."""
