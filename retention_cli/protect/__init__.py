"""Retain until consumed: raise a topic's own retention while required groups lag, and restore it (docs/protect.md)."""
