"""The error of inventories."""

from __future__ import annotations


class InventoryError(Exception):
    """An inventory can't be used; the text says why."""
