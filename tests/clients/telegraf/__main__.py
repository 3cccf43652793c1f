"""Builds Telegraf before the tests, and prints its path."""

from tests.clients.telegraf import binary

print(binary())
