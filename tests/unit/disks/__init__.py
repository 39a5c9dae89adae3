"""Unit tests of retention_cli/disks."""
