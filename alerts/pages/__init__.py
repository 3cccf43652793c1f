"""The pages of alerting: rules, the rule form with its live check, and messages."""
