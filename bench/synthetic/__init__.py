"""A cluster larger than this machine: a server that answers as Kafka's brokers do, from a shape instead of logs.

It is for timing kretain and the yardstick where three real brokers would not fit, and where their own work would hide
what a client costs. It is no stand-in for Kafka in any test of kretain: ``tests/kafka/brokers/test_embedded.py`` holds
its answers against a real cluster's.
"""
