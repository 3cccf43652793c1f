"""Alertmanager's API v2 over the alerts of one app, for ``amtool`` and Grafana: alerts, groups, silences, receivers.

It sees what the token's app may see. Alerts are judged here and cannot be posted.
"""
