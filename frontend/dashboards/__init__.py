"""Dashboards: their document, variables, versions, and the import of Grafana's."""
