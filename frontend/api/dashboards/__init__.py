"""Dashboards by REST: list, read, write with versions, import."""
