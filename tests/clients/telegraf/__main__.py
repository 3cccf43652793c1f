"""Builds Telegraf ahead of the tests, and says where it is."""

from tests.clients.telegraf import binary

print(binary())
