"""Shell completion and the overview, generated from the commands themselves."""
