"""The pages of an organisation: members, apps, tokens, usage, audit log, and the organisation itself.

Who may see a page or do an act stands in ``spm.accounts.organisations.rights``. Enter by ``urls``.
"""
