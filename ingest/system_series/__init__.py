"""Series the product sends into itself: each process' own metrics, and the state of an app's sources."""
