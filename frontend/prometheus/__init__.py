"""Prometheus' HTTP API over the query room."""
