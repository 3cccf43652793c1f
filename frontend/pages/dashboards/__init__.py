"""The pages of dashboards."""
