"""Tries rules on past data: what they would have said, the values they would have judged, and who had heard."""
