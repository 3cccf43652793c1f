"""Moves the data of an app to the shards of its newest placement epoch."""
