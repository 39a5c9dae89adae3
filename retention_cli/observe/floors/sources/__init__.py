"""Sources of floors outside Kafka's groups (F7): one module each, which yields positions for the same fold."""
