"""A real Kafka on this machine: for `kretain demo`, the tests and the bench. Stays on the client."""

from retention_cli.embedded.cluster import EmbeddedKafka
from retention_cli.embedded.errors import EmbeddedError
from retention_cli.embedded.jars import DEFAULT_VERSION

__all__ = ["DEFAULT_VERSION", "EmbeddedError", "EmbeddedKafka"]
