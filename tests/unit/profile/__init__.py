"""Unit tests of retention_cli/profile."""
