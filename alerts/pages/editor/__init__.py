"""The rule editor: its form for every kind of rule, the check of what is typed, and what it would have said."""
