"""Unit tests of retention_cli/decide."""
