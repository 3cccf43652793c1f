"""Exemplars: the newest of each app, in the database, with what a query of them asks for."""
