"""Make a plan, represent it as a value, save it and read it back."""
