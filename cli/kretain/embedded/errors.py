"""What can go wrong with the embedded Kafka, said in one line."""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded Kafka could not be had: no Java, no network, a port taken, a broker that died."""
