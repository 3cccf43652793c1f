"""Commands of the back room: roll, rollback, purge."""
