"""Presents hosts: the table and the map of all, the head of one, and the filter that chooses among them."""
