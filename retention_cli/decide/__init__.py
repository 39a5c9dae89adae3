"""Facts, settings and now: what may be trimmed. Pure."""
