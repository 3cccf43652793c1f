"""Pure functions and queries that turn models and answers into what templates and the REST interface draw."""
