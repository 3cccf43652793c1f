"""How much a judge knows: the frontier of what is known, the sources it waits for, and one look at an app. Pure."""
