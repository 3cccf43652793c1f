"""Series that alerting writes into an app: what recording rules compute, and ``ALERTS`` and ``ALERTS_FOR_STATE``.

``record`` computes a rule's samples and ``alert_samples`` those of alerts, both pure; ``recorded_storage`` lets a rule
read what the rules before it computed at the same steps; ``lane`` does it for all apps that are due, through the
acceptance of ingest like any sender. Enter by ``lane.write_due_series``.
"""
