"""A real Kafka on this machine: for `kretain demo`, the tests and the bench. Used only on the client."""

from kretain.embedded.cluster import EmbeddedKafka
from kretain.embedded.errors import EmbeddedError
from kretain.embedded.jars import DEFAULT_VERSION

__all__ = ["DEFAULT_VERSION", "EmbeddedError", "EmbeddedKafka"]
