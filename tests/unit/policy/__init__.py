"""Unit tests of retention_cli/policy."""
