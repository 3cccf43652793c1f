"""What each address of ingest does: how a body is read, and how its acceptance is answered."""
