"""Unit tests of retention_cli/archive."""
