"""Unit tests of retention_cli/audit."""
