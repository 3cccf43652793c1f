"""The collectors: each one reads one part of the machine, or one service on it, and returns points.

A collector is a callable without arguments. It keeps the state that it needs between two calls (counters, for
percentages). It knows neither the wire format nor the schedule. Enter by ``registry``.
"""
