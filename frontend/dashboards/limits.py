"""The bounds of dashboards, each with its reason."""

DASHBOARDS_PER_APP_MAX = 200  # the list shows them all
PANELS_MAX = 300  # of one dashboard: the largest public ones have two hundred
QUERIES_MAX = 26  # of one panel: they are named A to Z
VARIABLES_MAX = 60  # the largest public dashboards have forty
OPTIONS_MAX = 1_000  # values of one variable that a person picks from
VERSIONS_KEPT_MAX = 100  # of one dashboard: the oldest ones go
VERSIONS_BYTES_MAX = 4_000_000  # of one dashboard's documents: the oldest ones go; those of an app stay below 1 GB
DOCUMENT_BYTES_MAX = 400_000  # as JSON: the largest public dashboard has 120,000
IMPORT_BYTES_MAX = 950_000  # of a file of Grafana's, as text of a form: forms have at most 1,000,000
COLUMNS = 24  # of the grid
ROWS_MAX = 5_000  # of the grid
HEIGHT_MAX = 60  # of a panel, in rows of the grid
TITLE_CHARS_MAX = 200
NOTE_CHARS_MAX = 200  # of a version
TEXT_CHARS_MAX = 20_000  # of a text panel
NAME_CHARS_MAX = 60  # of a variable
VALUE_CHARS_MAX = 500  # of a variable's value
REGEX_CHARS_MAX = 500  # of the regular expression of a variable
TAGS_MAX, TAG_CHARS_MAX = 30, 60
REPEATED_MAX = 24  # panels that one repeated panel becomes
DRAWN_MAX = 400  # panels of one page, with copies of repeated ones
QUERIES_CHARS_MAX = 1_000_000  # of one page, with copies and values: the largest public dashboard has 120,000 without
TEXTS_CHARS_MAX = 200_000  # of one page, as HTML: a few seconds at worst
CELLS_MAX = 10_000  # of tables in a text: missing ones are made, and can be a hundred times as long as the text
