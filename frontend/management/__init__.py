"""Management commands of the frontend."""
