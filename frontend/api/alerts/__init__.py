"""The REST interface of alert rules, rule files and backtests."""
