"""The tables of dashboards, step by step."""
