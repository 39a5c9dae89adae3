"""Unit tests of retention_cli/engines."""
