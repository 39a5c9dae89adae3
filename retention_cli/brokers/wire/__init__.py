"""Connections, messages and codecs."""
