"""What people set about telling, besides receivers and silences: policies, maintenance windows and inhibitions.

A row that could not be read would stop the telling of its organisation, so ``checks`` refuses it before it is written.
Enter by ``rows``.
"""
