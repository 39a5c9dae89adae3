"""Unit tests of cli/kretain."""
