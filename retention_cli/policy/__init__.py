"""What the operator wants: the policy file, its schema, and each topic's effective settings.

The values that rules and guards are told live in ``settings``, which imports nothing; reading a file
(``load``) brings pydantic and YAML, so it is imported where a file is read.
"""
