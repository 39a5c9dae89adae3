"""Errors of the embedded Kafka, each in one line of text."""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded Kafka could not be provided: no Java, no network, a port taken, a broker that died."""
