"""Rules that read ``ALERTS`` and ``ALERTS_FOR_STATE``: after which rules they are judged, and what they see. Pure."""
