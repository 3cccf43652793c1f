"""The REST interface under ``/api/v1``: one class for each operation."""
