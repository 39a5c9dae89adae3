"""Unit tests of retention_cli/brokers."""
