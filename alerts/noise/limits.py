"""The bounds of noise reports, each with its reason. Times are milliseconds."""

WEEK_MS = 7 * 86_400_000  # of one report
MONDAY_MS = 4 * 86_400_000  # the first Monday since the epoch: weeks begin on Mondays, UTC
READY_MS = 6 * 3_600_000  # so long after a week its report is made: late data is judged, and mail comes in the morning
FLAP_MS = 30 * 60_000  # an alert that begins anew sooner after its end was not over
RULES_SHOWN = 20  # by each of the orders of a report: nobody mends more in a week
MAIL_RULES_MAX = 10  # of one mail; the page has the others
REPORTS_SHOWN = 12  # weeks on the page: a quarter; REST has the others
RULES_TRIED = 10  # with a longer ``for``: the noisiest, each is a backtest of a week
TRY_S = 20.0  # of one report, after which no further backtest is begun
ROUND_S = 20.0  # of one round, after which no further report is begun: with TRY_S below the minute between two
NOTIFICATIONS_MAX = 20_000  # of one report, the newest: a flood has so many
EPISODES_MAX = 200_000  # named by these
SILENCED_MAX = 5_000  # alerts, the newest, that are compared with the silences of the week
REPORTS_KEEP_MS = 400 * 86_400_000  # as long as alerts, to compare with last year
BATCH_ROWS = 500  # of one statement: databases bound its parameters
