"""What fired in a range of time, by lanes, with the people who took it and what they noted."""
