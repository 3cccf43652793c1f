"""Decides, from values alone, what a run, a purge or the retention has to do. Nothing here reads or writes."""
