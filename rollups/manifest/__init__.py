"""Reads manifest cells and publishes new ones by check-and-put: the only write that readers see."""
