"""The bounds of rule files, each with its reason."""

FILE_BYTES_MAX = 1_000_000  # about 3,000 rules with their annotations
NODES_MAX = 100_000  # of YAML in one file: the parser is slow, and takes some 20 s per million
DEPTH_MAX = 12  # a rule file is six deep
FILES_MAX = 100  # of an app
LABELS_MAX = 30  # of a rule, as of a series that people can read
LABEL_CHARS_MAX = 4_000  # of a name or a template
ANNOTATIONS_MAX = 30
INTERVAL_MAX_MS = 24 * 3_600_000  # what is recorded more seldom has no series that a chart can draw
