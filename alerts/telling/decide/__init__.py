"""Pure decisions about notifications: from episodes, configuration and a time to a value with its reason."""
