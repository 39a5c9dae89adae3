"""Unit tests of cli/kretain/embedded."""
