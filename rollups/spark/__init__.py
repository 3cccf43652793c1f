"""Runs tasks on Spark: the session, the jobs and their frames, the Python daemon, the archives for a cluster."""
