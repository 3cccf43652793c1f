"""Prometheus' HTTP API on top of `spm.query`."""
