"""Collectors of services on the machine, and of commands that its administrator defines."""
