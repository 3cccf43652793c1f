"""The bounds of the history of alerts, each with its reason."""

INCIDENTS_MAX = 5_000  # newest alerts of a range that are read, some 100 ms; more are cut, and the page says so
LANES_SHOWN = 50  # of one page
LISTED_MAX = 50  # alerts of a lane that the page lists; its line shows all
NOTES_MAX = 500  # newest notes of a range
RANGE_MS_MAX = 400 * 86_400_000  # as long as alerts are kept
WEEK_GROUPS_MAX = 50_000  # pairs of cells of a page of rules: 500 of each rule, where flapping ones have 84
