"""Unit tests of the house itself: walls, docs, what is generated."""
