"""The noise report: which rules notified most in a week, what nobody acted on, and what a longer ``for`` had saved."""
