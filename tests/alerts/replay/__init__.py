"""Histories of many rules, lived by judges that are killed and then replayed."""
