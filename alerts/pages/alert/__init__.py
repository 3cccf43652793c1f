"""The page of one alert: what was seen, the chart as it was known then and is known now, and who was notified."""
