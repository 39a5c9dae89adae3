"""kretain's engine: reads a Kafka cluster, decides one offset per partition, and trims.

It prints nothing and asks nothing: what a person or a runbook touches is the package ``kretain``.
"""

__version__ = "0.1.0"
