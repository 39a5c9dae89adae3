"""kretain's engine: reads a Kafka cluster, decides one offset per partition, and trims.

It prints nothing and asks nothing: the package ``kretain`` is what people and runbooks use. Numbers such as
R1, G3, F5 and M2 in its docstrings are the rules in docs/rules.md.
"""

__version__ = "0.1.0"
