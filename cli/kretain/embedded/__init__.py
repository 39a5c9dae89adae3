"""A real Kafka on this machine for `kretain demo`; the tests and the bench make clusters of it. Only on the client."""
