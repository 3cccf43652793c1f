"""The pages of alerts: rules, the rule form with its live check, and mails."""
