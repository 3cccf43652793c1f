"""Runs, retractions, placement and maintenance with their records in the database: what commands, tasks and the admin
call.
"""
