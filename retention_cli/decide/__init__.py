"""Decide what may be trimmed, from facts, settings and the current time. Pure."""
