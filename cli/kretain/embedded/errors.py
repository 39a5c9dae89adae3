"""Errors of the embedded Kafka, each with a one-line text."""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded Kafka could not be provided: no Java, no network, a port taken, a broker that died."""
