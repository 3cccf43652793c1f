"""Runs one task: reads an hour shard, merges and aggregates it, writes its rows."""
