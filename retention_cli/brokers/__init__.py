"""The only room that speaks to Kafka. Sentinels such as −1 end here, and no request is repeated in secret.

kafka-python carries the requests: it shows each partition's own error, leader epochs, stable offsets and
share and streams groups, and its cost grows with the answer alone. confluent-kafka reads records.
"""
