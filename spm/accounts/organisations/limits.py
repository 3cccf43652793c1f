"""Every number that decides about organisations and their people, with its reason."""

from spm.limits import HOUR_MS

INVITATION_MS = 7 * 24 * HOUR_MS  # a holiday week; a link that lies in a mailbox for longer is a risk
INVITATIONS_OPEN_MAX = 200  # of one organisation: the site must not become a source of unwanted mail
ORGANISATIONS_OWNED_MAX = 20  # of one person: each is a tenant with quotas of its own
APPS_MAX = 200  # of one organisation: each may keep an index in memory
