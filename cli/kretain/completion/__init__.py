"""Shell completion and the overview."""
