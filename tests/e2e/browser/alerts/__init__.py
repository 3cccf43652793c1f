"""The pages of alerts in a browser."""
