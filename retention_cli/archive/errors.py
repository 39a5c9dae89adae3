"""Errors of an archive, each with a one-line text."""

from __future__ import annotations


class ArchiveError(Exception):
    """An archive could not be reached, read or written."""


class DamagedError(ArchiveError):
    """A file of an archive is missing, or differs from its manifest."""
