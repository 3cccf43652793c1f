"""The spool on disk: segments, records, and the identity under which messages are numbered."""
