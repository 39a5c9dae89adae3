"""Trims of a real cluster, and what they leave behind."""
