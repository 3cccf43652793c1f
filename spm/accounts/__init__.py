"""Organisations, apps, tokens, sources and the audit log."""
