"""Every number that decides about logins, each with its reason. ``spm.limits`` has those that several rooms read."""

from spm.limits import HOUR_MS

PASSWORD_HASH_KIB = 38_912  # of memory that one hash needs: twice what OWASP asks for, and two stay below 80 MB
PASSWORD_HASH_PASSES = 2  # over that memory: some 60 ms of one core
PASSWORD_HASHES_AT_ONCE = 2  # in one process, of strangers one: more would take memory and cores from everybody else
PASSWORD_HASHES_WAITING_MAX = 2  # that wait, of strangers and of known people each: a thread for logins stays free
PASSWORD_HASH_WAIT_S = 5.0  # for a slot; two dozen others are computed meanwhile
PASSWORDS_BUSY_RETRY_S = 2  # the Retry-After of a login that was not checked for want of a slot
LOGIN_PAIR_FREE = 5  # tries of an account from a strange network before a pause: people mistype three times
LOGIN_KNOWN_FREE = 10  # from a known device or network: its owner has proven to know the password
LOGIN_NETWORK_FREE = 30  # of a network for any accounts that do not know it: an office, the morning after a move
LOGIN_ACCOUNT_FREE = 20  # of an account from all strange networks: above the free tries of one or two of them
LOGIN_PAUSE_MS = 2_000  # after the free tries; doubled after each further one
LOGIN_PAUSE_MAX_MS = 900_000  # 96 tries a day: years for a thousand words
LOGIN_SKEW_MS = 60_000  # clocks of machines differ by less
LOGIN_FEW = 5  # failures, below which they are forgotten after an hour: so that a table of sprayed names stays small
LOGIN_FORGET_FEW_MS = HOUR_MS  # above the longest pause, so that waiting saves nobody a pause
LOGIN_FORGET_MS = 24 * HOUR_MS  # else one could begin anew between two pauses
LOGIN_KNOWN_MS = 30 * 24 * HOUR_MS  # since the last right login from a device or a network
LOGIN_KNOWN_MAX = 50  # devices and networks that one account knows: a phone changes its network every day
LOGIN_SWEEP_ROWS_MAX = 20  # expired rows deleted with each try, which adds three at most
LOGIN_NOTICE_EVERY_MS = 24 * HOUR_MS  # between two mails about wrong logins to one person
LOGIN_REFUSAL_KNOWN_MS = 2_000  # for which a process refuses further tries without the database: as the first pause
LOGIN_REFUSALS_KNOWN_MAX = 10_000  # refusals that one process remembers: some 800 bytes each
LOGIN_AUDIT_MS = 15 * 60_000  # in which equal events become a few entries of the audit log
LOGIN_AUDIT_SINGLY = 10  # right logins of a person from an address in that time that have an entry each
LOGIN_AUDIT_KEYS_MAX = 10_000  # such events that one process distinguishes: some 200 bytes each
LOGIN_AUDIT_PER_MINUTE = 60  # entries of one process, above which different events are counted together
SESSION_NOTED_EVERY_S = 600  # how exact "last used" of a session is: one write for each in that time
SESSIONS_NOTED_MAX = 10_000  # sessions of which one process knows that they are noted: some 200 bytes each
UNCONFIRMED_MS = 24 * HOUR_MS  # for which a new account works before its mail address is confirmed
