"""A real Kafka on this machine for `kretain demo`; the tests and the bench make clusters of it. Only on the client."""

from kretain.embedded.cluster import EmbeddedKafka
from kretain.embedded.errors import EmbeddedError
from kretain.embedded.jars import DEFAULT_VERSION

__all__ = ["DEFAULT_VERSION", "EmbeddedError", "EmbeddedKafka"]
