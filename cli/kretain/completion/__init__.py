"""Completion and overviews, made from the commands themselves."""
