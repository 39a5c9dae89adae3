"""Unit tests of retention_cli/advise."""
