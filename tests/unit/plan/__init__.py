"""Unit tests of retention_cli/plan."""
