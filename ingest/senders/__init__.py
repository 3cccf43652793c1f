"""Who sends: agents as the site knows them, and the principals behind token ids."""
