"""The spool on disk: segments, records, and the identity that numbers messages."""
