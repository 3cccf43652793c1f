"""Prometheus' unit tests of rules (``promtool test rules``), on this product's engine and automaton.

``notation`` reads series, ``content`` reads test files, ``run`` runs them in memory. Enter by ``run.failures_of``.
"""
