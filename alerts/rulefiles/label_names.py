"""Which labels a rule may set or group by: files, REST and pages ask here. Pure."""

import re

WANTED = "letters, digits and _, not beginning with a digit; neither __name__ nor alertname"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def is_rule_label(name: str) -> bool:
    """Whether a rule may have a label of this name."""
    return _NAME.fullmatch(name) is not None and name not in ("__name__", "alertname")
