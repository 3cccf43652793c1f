"""The bounds of templates, each with its reason. A template comes from a user and is rendered for every alert."""

TEMPLATE_CHARS_MAX = 4_000  # longer texts belong into the runbook
TEXT_CHARS_MAX = 8_000  # of a rendered text: it goes into mails and series
TEMPLATE_STEPS_MAX = 5_000  # rounds of loops and uses of definitions: some milliseconds
TEMPLATE_DEFINITIONS_MAX = 50  # of one template
TEMPLATE_QUERIES_MAX = 10  # of one rendered text
TEMPLATE_SERIES_MAX = 1_000  # of the answer to one of its queries: more are not read in a text
ANNOTATION_CHARS_MAX = 1_000  # of one alert's text in a notification: what is longer belongs into the runbook
TEXTS_S = 10.0  # of reading the texts of one notification, so that its hand-over still has its time
