"""Disks of real brokers: inventories, ceilings, estimates."""
