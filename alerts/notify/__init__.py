"""Messages to people: the notifiers (``registry``), the outbox that delivers with them, and the message's text."""
