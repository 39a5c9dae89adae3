"""What can be wrong with an archive, each in one line of text."""

from __future__ import annotations


class ArchiveError(Exception):
    """An archive could not be reached, read or written."""


class DamagedError(ArchiveError):
    """A file of an archive is missing, or does not hold what its manifest says."""
