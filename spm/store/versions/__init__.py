"""Which samples count: merge of versions, generations of an hour, visibility, retractions, quarantine."""
