"""The bounds of dashboards, each with its reason."""

DASHBOARDS_PER_APP_MAX = 500  # the list shows them all
PANELS_MAX = 300  # of one dashboard: the largest public ones have two hundred
QUERIES_MAX = 26  # of one panel: they are named A to Z
VARIABLES_MAX = 60  # the largest public dashboards have forty
OPTIONS_MAX = 1_000  # values of one variable that a person picks from
VERSIONS_KEPT_MAX = 100  # of one dashboard: the oldest ones go
DOCUMENT_BYTES_MAX = 900_000  # as JSON; a form that holds one stays below the bound of forms
IMPORT_BYTES_MAX = 5_000_000  # of a file of Grafana's: most of it is not kept
COLUMNS = 24  # of the grid
ROWS_MAX = 5_000  # of the grid
HEIGHT_MAX = 60  # of a panel, in rows of the grid
TITLE_CHARS_MAX = 200
TEXT_CHARS_MAX = 20_000  # of a text panel
REPEATED_MAX = 24  # panels that one repeated panel becomes
