"""Compacts stored samples and aggregates them by hour and day, in the process or on Spark."""
