"""Builds the collector ahead of the tests, and says where it is."""

from tests.clients.collector import build

print(build())
