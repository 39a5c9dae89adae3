"""Archives of real records."""
