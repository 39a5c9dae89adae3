"""Unit tests of retention_cli/memory."""
