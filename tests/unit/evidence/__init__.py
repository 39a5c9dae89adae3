"""Unit tests of retention_cli/evidence."""
