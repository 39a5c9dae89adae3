"""What the operator wants: the policy file, its schema, and each topic's effective settings.

The values that rules and guards use are in ``settings``, which is cheap to import; ``load`` imports pydantic and YAML,
so it is imported only where a file is read.
"""
