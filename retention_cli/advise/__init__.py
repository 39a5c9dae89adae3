"""How long brokers really keep data, what endangers it, and better settings. Every module but ``reading`` is pure."""
