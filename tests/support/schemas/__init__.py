"""Apache Kafka's message definitions, Apache License 2.0, unchanged: what a streams client sends."""
