"""A real Kafka on this machine for `kretain demo`; the tests and the bench make clusters of it. Only on the client."""

from kretain.embedded.cluster import EmbeddedKafka
from kretain.embedded.jars import DEFAULT_VERSION
from kretain.embedded.java import EmbeddedError

__all__ = ["DEFAULT_VERSION", "EmbeddedError", "EmbeddedKafka"]
