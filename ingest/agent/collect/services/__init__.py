"""Collectors of services on the machine, and of commands of its user."""
