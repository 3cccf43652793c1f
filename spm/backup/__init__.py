"""Copies the whole product into a folder while it runs, and puts such a copy back.

Enter by ``backup.make_backup`` and ``restore.restore_backup``; ``bin/manage backup`` and ``bin/manage restore`` do.
"""
