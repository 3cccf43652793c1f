"""Builds the collector before the tests, and prints its path."""

from tests.clients.collector import build

print(build())
