"""Logging in: how often one may try (``rules``, ``budgets``), what a try costs (``hashers``), who learns of it.

Enter by ``attempts``: every check of a person's password for a request goes through it.
"""
