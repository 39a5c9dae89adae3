"""The commands as people and scripts use them, on a real cluster."""
