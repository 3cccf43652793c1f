"""Runs, retractions, placement and maintenance with database records: commands, tasks and the admin call these."""
