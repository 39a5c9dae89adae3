"""Unit tests of retention_cli/observe."""
