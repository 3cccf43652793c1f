"""Reads dashboards of Grafana, in the classic schema and in V2, and says what becomes of each panel."""
