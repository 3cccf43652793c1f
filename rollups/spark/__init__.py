"""Spark: the session, the jobs and their frames, the Python daemon, what a cluster is sent."""
