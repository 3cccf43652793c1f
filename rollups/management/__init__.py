"""Commands of the back room."""
