"""The only package that talks to Kafka. Sentinels such as −1 don't leave it, and no request is silently repeated.

kafka-python sends the requests: it exposes each partition's own error, leader epochs, stable offsets and share and
streams groups, and its cost grows only with the response. confluent-kafka reads records.
"""
