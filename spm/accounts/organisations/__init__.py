"""Organisations as their own people run them: rights, members, invitations.

``rights`` is the one table of who may do what. Enter by the acts of ``members``, ``invitations`` and ``settings``.
"""
