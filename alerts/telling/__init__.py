"""Telling people about alerts: what each receiver still has to hear, in which notification, and what became of it.

``decide`` holds the pure decisions; the modules beside it read and write the tables. Enter by ``hook`` (episodes have
changed), ``flush`` (write the notifications that are due) and ``sender`` (deliver them).
"""
