"""Every number that decides about organisations, their people and tokens, with its reason."""

from spm.limits import HOUR_MS

INVITATION_MS = 7 * 24 * HOUR_MS  # a holiday week; a link that lies in a mailbox for longer is a risk
INVITATIONS_OPEN_MAX = 200  # of one organisation: the site must not become a source of unwanted mail
ORGANISATIONS_OWNED_MAX = 20  # of one person: each is a tenant with quotas of its own
APPS_MAX = 200  # of one organisation: each may keep an index in memory
INVITED_AT_ONCE_MAX = 50  # addresses in one form: a department
USAGE_APPS_SHOWN = 50  # apps whose series are counted for one page: each count may load an index
TOKEN_DAYS_MAX = 3_650  # that a token may be good for, unless for ever: ten years are a mistake's worth
TOKEN_OVERLAP_MS = 24 * HOUR_MS  # for which a rotated token still works: senders are changed within a working day
