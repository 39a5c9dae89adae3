"""Unit tests of retention_cli/trim."""
