"""Measurements: kretain beside Kafka's own tools and an expert's Go program, on the same cluster, in one run."""
