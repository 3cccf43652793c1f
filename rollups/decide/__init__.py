"""What a run, a purge or a retention has to do, decided from values alone. Nothing here reads or writes."""
