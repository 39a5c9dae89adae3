"""What can be wrong with an archive, each said in one line."""

from __future__ import annotations


class ArchiveError(Exception):
    """An archive could not be reached, read or written."""


class DamagedError(ArchiveError):
    """A file of an archive is missing, or does not hold what its manifest says."""
