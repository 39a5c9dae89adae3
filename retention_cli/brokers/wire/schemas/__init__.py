"""Apache Kafka's message definitions, Apache License 2.0, unchanged (see ``protocol.py``)."""
