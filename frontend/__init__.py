"""Everything that people and programs read: pages, REST, Prometheus' interface, export and import."""
