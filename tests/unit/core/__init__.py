"""Unit tests of retention_cli/core."""
