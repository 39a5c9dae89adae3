"""The plan: made, as a value, saved and read back."""
